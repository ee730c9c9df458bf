"""The search for remedies that work together: one after the other, each kept if it leaves fewer problems."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.core.records import Finding
from envdoctor.install.fix_records import Fix
from envdoctor.install.remedy_plan import PROBLEMS, Application, Fixable, fixable_findings, worse_findings

ERROR_WEIGHT = 10  # one error counts as much as this many warnings


class Search:
    """The remedies that were accepted, those that were tried, and the problems of the copy with the accepted ones."""

    def __init__(self, before: Sequence[Finding]) -> None:
        self.before = self.current = before
        self.accepted: list[tuple[Fixable, int]] = []
        self.reasons: dict[str, str] = {}  # why a remedy was not accepted, by the message of its finding
        self.tried: list[Application] = []
        self.not_first: list[Application] = []  # remedies that are of no use as the first one
        self.best: tuple[str, ...] = ()  # the findings whose remedies worked together and left the fewest problems
        self.best_score = score(before)
        self.needs_copy = True  # the copy has other changes than those of the accepted remedies
        self.trials = 0

    def next_candidate(self, fix: Fix) -> tuple[Fixable, int] | None:
        """The next remedy: of a chosen finding that is still there, or of a problem that another remedy caused."""
        chosen = {each.finding.id for each in fix.chosen}
        known = {(each.id, each.message) for each in fix.before}
        for fixable in fixable_findings(self.current):
            finding = fixable.finding
            if finding.id in chosen or (finding.id, finding.message) not in known:
                for choice, application in enumerate(fixable.alternatives):
                    if application not in self.tried:
                        self.trials += 1
                        return fixable, choice
        return None

    def restart(self) -> bool:
        """Start again without the remedy that was accepted first. False if none was accepted."""
        if not self.accepted:
            return False
        fixable, choice = self.accepted[0]
        self.not_first.append(fixable.alternatives[choice])
        self.tried, self.accepted, self.current, self.needs_copy = [*self.not_first], [], self.before, True
        return True

    def exclude(self, fixable: Fixable, choice: int, reason: str) -> None:
        """Do not try a remedy again."""
        self.tried.append(fixable.alternatives[choice])
        if not self.accepted:
            self.not_first.append(fixable.alternatives[choice])
        self.reasons.setdefault(fixable.finding.message, reason)

    def consider(self, candidate: tuple[Fixable, int], after: Sequence[Finding], reason: str) -> None:
        """Accept a remedy if it leaves fewer problems."""
        if score(after) < score(self.current):
            self.accepted.append(candidate)
            self.tried.append(candidate[0].alternatives[candidate[1]])
            self.reasons.pop(candidate[0].finding.message, None)
            self.current = after
            if score(after) < self.best_score and not worse_findings(self.before, after):
                self.best_score = score(after)
                self.best = tuple(dict.fromkeys(each.finding.id for each, _ in self.accepted))
        else:
            self.exclude(*candidate, reason)
            self.needs_copy = True


def score(findings: Sequence[Finding]) -> int:
    """The weight of all problems."""
    return sum(ERROR_WEIGHT if each.status == "error" else 1 for each in findings if each.status in PROBLEMS)
