"""The remedies that are applied first, and the search for others that work together.

The first ones are chosen by the built-in tables. If they fail, remedies are tried in a copy one after the other, and
each is kept if it leaves fewer problems.
"""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.core.remedies import Install
from envdoctor.install.fix_records import Fix, Trial
from envdoctor.install.remedy_plan import PROBLEMS, Application, Fixable, fixable_findings, worse_findings
from envdoctor.remedies.simulate import stack_with
from envdoctor.rules import evaluate
from envdoctor.rules.requirements import versions_of

ERROR_WEIGHT = 10  # one error counts as much as this many warnings


def first_choices(machine: Machine, stack: Stack, chosen: Sequence[Fixable]) -> list[tuple[Fixable, int]]:
    """The fewest remedies that leave none of the problems by the tables, with the smallest changes.

    A problem whose remedies the tables cannot judge keeps its first one.
    """
    choices: list[tuple[Fixable, int]] = []
    left, present = list(chosen), score(evaluate(machine, stack))
    while left:
        candidates = [
            (score(evaluate(machine, after)), len(_changed(stack, after)), fixable, choice, after)
            for fixable in left
            for choice, application in enumerate(fixable.alternatives)
            if (after := stack_with(machine, stack, application.steps))
        ]
        if not candidates:
            break
        expected, _, fixable, choice, after = min(candidates, key=lambda each: each[:2])
        if expected >= present:
            break
        choices.append((fixable, choice))
        stack, present = after, expected
        ids = {each.id for each in evaluate(machine, stack) if each.status in PROBLEMS}
        left = [each for each in left if each is not fixable and each.finding.id in ids]
    return [*choices, *((each, 0) for each in left)]


def choices_with_ranges(chosen: Sequence[Fixable]) -> list[tuple[Fixable, int]]:
    """The first remedy of each finding that leaves a version to uv, else its first one."""

    def leaves_a_version(application: Application) -> bool:
        installs = [step for step in application.steps if isinstance(step, Install)]
        return any("==" not in package for step in installs for package in step.packages)

    return [
        (each, next((n for n, one in enumerate(each.alternatives) if leaves_a_version(one)), 0)) for each in chosen
    ]


def _changed(before: Stack, after: Stack) -> set[str]:
    """The packages whose version differs."""
    one, other = versions_of(before), versions_of(after)
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


class Search:
    """The remedies that were accepted, those that were tried, and the problems of the copy with the accepted ones."""

    def __init__(self, before: Sequence[Finding], stack: Stack) -> None:
        self.before = self.current = before
        self.original = self.stack = stack
        self.accepted: list[tuple[Fixable, int]] = []
        self.reasons: dict[str, str] = {}  # why a remedy was not accepted, by the message of its finding
        self.tried: list[Application] = []
        self.not_first: list[Application] = []  # remedies that are of no use as the first one
        self.best: tuple[Finding, ...] = ()  # those whose remedies worked together and left the fewest problems
        self.best_score = score(before)
        self.needs_copy = True  # the copy has other changes than those of the accepted remedies
        self.trials = 0

    def next_candidate(self, fix: Fix) -> tuple[Fixable, int] | None:
        """The next remedy: of a chosen finding that is still there, or of a problem that another remedy caused.

        The one that leaves the fewest problems by the built-in tables comes first.
        """
        chosen = {each.finding.id for each in fix.chosen}
        known = {(each.id, each.message) for each in fix.before}
        candidates = [
            (fixable, choice)
            for fixable in fixable_findings(self.current)
            if fixable.finding.id in chosen or (fixable.finding.id, fixable.finding.message) not in known
            for choice, application in enumerate(fixable.alternatives)
            if application not in self.tried
        ]
        self.trials += bool(candidates)
        return min(candidates, key=lambda each: self.expected_score(fix.machine, *each), default=None)

    def expected_score(self, machine: Machine, fixable: Fixable, choice: int) -> int:
        """The problems that a remedy leaves by the tables; the present ones if the tables lack its packages."""
        after = stack_with(machine, self.stack, fixable.alternatives[choice].steps)
        return score(evaluate(machine, after)) if after else score(self.current)

    def restart(self) -> bool:
        """Start again without the remedy that was accepted first. False if none was accepted."""
        if not self.accepted:
            return False
        fixable, choice = self.accepted[0]
        self.not_first.append(fixable.alternatives[choice])
        self.tried, self.accepted, self.current, self.needs_copy = [*self.not_first], [], self.before, True
        self.stack = self.original
        return True

    def exclude(self, fixable: Fixable, choice: int, reason: str) -> None:
        """Do not try a remedy again."""
        self.tried.append(fixable.alternatives[choice])
        if not self.accepted:
            self.not_first.append(fixable.alternatives[choice])
        self.reasons.setdefault(fixable.finding.message, reason)

    def consider(self, candidate: tuple[Fixable, int], trial: Trial, reason: str) -> None:
        """Accept a remedy if it leaves fewer problems."""
        after = trial.after
        if score(after) < score(self.current):
            self.accepted.append(candidate)
            self.tried.append(candidate[0].alternatives[candidate[1]])
            self.reasons.pop(candidate[0].finding.message, None)
            self.current, self.stack = after, trial.stack or self.stack
            if score(after) < self.best_score and not worse_findings(self.before, after):
                self.best_score = score(after)
                self.best = tuple(each.finding for each, _ in self.accepted)
        else:
            self.exclude(*candidate, reason)
            self.needs_copy = True


def score(findings: Sequence[Finding]) -> int:
    """The weight of all problems."""
    return sum(ERROR_WEIGHT if each.status == "error" else 1 for each in findings if each.status in PROBLEMS)
