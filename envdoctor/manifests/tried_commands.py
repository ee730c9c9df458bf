"""Tries the commands of findings as further steps of their guide, and keeps those that cause no further problem.

A command that corrects one package can make another one unfit: `uv pip install vllm` takes the newest release, and
leaves a trl that does not support it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property, partial
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.records import Finding, Machine
from envdoctor.core.remedies import Install, Remedy, remedy_of
from envdoctor.core.wording import join_words
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Install as InstallAction
from envdoctor.manifests.actions import UseImage
from envdoctor.manifests.checks import evaluate_guide
from envdoctor.manifests.consistent_commands import (
    PROBLEMS,
    installs_of,
    replaced_pins_of,
    with_bounds_of_breaks,
    with_excluding,
    with_pins,
    with_torch_of,
    without_other_torch,
    without_release,
)
from envdoctor.manifests.context import GuideContext, build_context, main_environment
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.joint_solutions import broken_requirement, contradiction, permits, replaced_pins
from envdoctor.manifests.tried_actions import action_of, is_project, with_requirements
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.step import StepSolver, apart

_MAX_COMMANDS = 12  # of a file: each is a further interpretation of it
_SECONDS = 60.0  # of all commands of a file, and again of those whose packages alone are compared
_ROUNDS = 2  # a command that is joined with that for its consequence can have another one
_UNTRIED = "The command was not tried with the other packages: the limit for trials was reached."
# On what a step replaces, which is the purpose of a command, and on how a build runs: not on the result.
_OF_STEPS = frozenset({"RUN010", "RUN044"})
# On requirements that exclude each other: without uv, an installed package keeps its release.
_CONFLICTS = frozenset({"RUN002", "RUN015"})
_OF_TABLES = frozenset({"RUN003", "RUN004"})  # on releases that do not work together


class _Trial(NamedTuple):
    """What a guide has after a command that it did not have before: a conflict, findings, or replaced pins."""

    conflict: str
    findings: tuple[Finding, ...]
    pins: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()  # the package whose requirement is the conflict: another release can fit

    @property
    def is_clean(self) -> bool:
        return not (self.conflict or self.findings or self.pins)


def with_tried_commands(
    findings: Sequence[Finding], paths: Sequence[Guide], machine: Machine | None, today: str,
    solver: StepSolver | None,
) -> tuple[Finding, ...]:  # fmt: skip
    """The findings with the commands after which a guide has no problem that it did not have.

    A command with a consequence is joined with the command against that. If this does not help either, the finding
    has no command, and its fix states the consequence.
    """
    if not any(each.status in PROBLEMS and any(map(_installs, each.remedies)) for each in findings):
        return tuple(findings)
    is_solving = solver is not None and not solver.reason
    solver = apart(solver)
    contexts = [build_context(path, machine, today, solver) for path in paths]
    trials = _Trials([_Path(each, findings) for each in contexts], machine, today, solver)
    trials.is_solving = is_solving
    findings = trials.with_one_release(findings)
    trials.try_together([each for each in findings if each.status in PROBLEMS])
    proven = [trials.proven(each) if each.status in PROBLEMS else each for each in findings]
    return tuple(without_other_torch(proven))


def _installs(remedy: Remedy) -> bool:
    return bool(installs_of(remedy))


class _Path:
    """A path through a guide with the findings on it."""

    def __init__(self, context: GuideContext, found: Sequence[Finding]) -> None:
        self.context = context
        self.found = found  # on all paths

    @cached_property
    def known(self) -> set[tuple[str, str, tuple[str, ...]]]:
        """What the findings before a command are about; those on the packages of a notebook are joined in one."""
        is_notebook = any(each.program.is_notebook for each in self.context.guide.launches)
        return {_key(each) for each in (evaluate_guide(self.context) if is_notebook else self.found)}

    def failing(self, line: int) -> int:
        """The index of the step without a solution that a line is part of; -1 if there is none."""
        failed = {
            (each.action.line, each.action.command) for each in self.context.trace.installs
            if each.resolution.state == "conflict" and line in _lines(each.action)
        }  # fmt: skip
        indexes = (
            index for index, each in enumerate(self.context.guide.actions)
            if isinstance(each, InstallAction) and (each.line, each.command) in failed
        )  # fmt: skip
        return next(indexes, -1)

    def place(self, line: int, *, is_own: bool) -> int:
        """The index of the last action that installs into the environment of a line, in its stage; -1 if none does.

        With `is_own`, the line is that of an installation.
        """
        installs = self.context.trace.installs
        of_line = [each for each in installs if line in _lines(each.action)]
        main = main_environment(self.context)
        name = of_line[-1].after.name if of_line else main.state.name if main and not is_own else None
        commands = {(each.action.line, each.action.command) for each in installs if each.after.name == name}
        actions = self.context.guide.actions
        own = next((n for n, each in enumerate(actions) if of_line and each == of_line[-1].action), len(actions))
        stage = next((n for n in range(own, len(actions)) if isinstance(actions[n], UseImage)), len(actions))
        indexes = (
            index for index, each in enumerate(actions[:stage])
            if isinstance(each, InstallAction) and (each.line, each.command) in commands
        )  # fmt: skip
        return max(indexes, default=-1)


class _Trials:
    """The trials of the commands for a guide. Equal commands are tried once."""

    def __init__(
        self, paths: Sequence[_Path], machine: Machine | None, today: str, solver: StepSolver | None
    ) -> None:
        self.paths = paths
        self.machine, self.today, self.solver = machine, today, solver
        self.tried: dict[tuple[int, int, bool, tuple[str, ...]], _Trial | None] = {}
        self.joined: dict[tuple[str, ...], Remedy] = {}  # commands with the torch of the other ones
        self.untried: set[tuple[str, ...]] = set()  # commands that no time was left for
        self.end = time.monotonic() + _SECONDS
        self.is_solving = False  # the steps of the guide were solved; trials have a limit of their own

    def with_one_release(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings with commands that install one release of each package into an environment."""
        places = [self._place(each.line) for each in findings]
        replaced = {place: self._replaced(place, findings, places) for place in set(places) if place}
        changed = [
            with_pins(each, replaced[place]) if place and replaced[place] else each
            for each, place in zip(findings, places, strict=True)
        ]
        return [self._with_excluding(each, place, changed) for each, place in zip(changed, places, strict=True)]

    def _with_excluding(self, finding: Finding, place: tuple[int, int] | None, others: Sequence[Finding]) -> Finding:
        """The finding, whose commands have bounds for what breaks a pin, and packages that exclude one."""
        path = self.paths[place[0]] if place else None
        if path is None or finding.status not in (*PROBLEMS, "unknown") or not finding.remedies:
            return finding
        install = next((each for each in path.context.trace.installs if finding.line in _lines(each.action)), None)
        if install is None or is_project(install.action):
            return finding
        finding = with_bounds_of_breaks(path.context, install.after, finding)
        first = [step for each in others for remedy in each.remedies[:1] for step in installs_of(remedy)]
        opened = {text for step in first for text in step.packages if _name(text) == text}
        return with_excluding(path.context, install.after, finding, opened) if opened else finding

    def _replaced(
        self, place: tuple[int, int], findings: Sequence[Finding], places: Sequence[tuple[int, int] | None]
    ) -> dict[str, str]:
        """The pins that commands for one environment replace."""
        installs = self.paths[place[0]].context.trace.installs
        own = {f"{each.name}=={each.pin}" for step in installs for each in step.action.requirements if each.pin}
        here = [each for each, other in zip(findings, places, strict=True) if other == place]
        problems = (each for each in here if each.status in (*PROBLEMS, "unknown"))
        return replaced_pins_of([remedy for each in problems for remedy in each.remedies[:1]], own)

    def try_together(self, findings: Sequence[Finding]) -> None:
        """Try all first commands one after the other: if they have no consequence together, none has one alone."""
        groups: dict[tuple[int, int], dict[tuple[str, ...], Remedy]] = {}
        for finding in (each for each in findings if each.id not in _CONFLICTS):
            remedy = next(filter(_installs, finding.remedies[:1]), None)
            place = self._place(finding.line) if remedy else None
            if remedy and place:
                groups.setdefault(place, {})[remedy.commands] = remedy
        for (number, index), remedies in groups.items():
            for _ in range(_ROUNDS if len(remedies) > 1 else 0):
                together = remedy_of([step for remedy in remedies.values() for step in remedy.steps])
                trial = self._try(self.paths[number], index, together)
                if trial and trial.is_clean:
                    self.tried |= {(number, index, False, commands): trial for commands in remedies}
                    left = (each for key, each in groups[number, index].items() if key not in remedies)
                    self.joined |= {each.commands: with_torch_of([*remedies.values()], each) for each in left}
                facts = {item.fact for each in trial.findings for item in each.evidence} if trial else set()
                fitting = {key: each for key, each in remedies.items() if facts.isdisjoint(_names(each))}
                if len(fitting) in (0, 1, len(remedies)):
                    break
                remedies = fitting  # noqa: PLW2901 -- without the commands that have a consequence next to the others

    def proven(self, finding: Finding) -> Finding:
        """The finding with the remedies that have no consequence."""
        kept, reasons = list[Remedy](), list[str]()
        for remedy in finding.remedies:
            proven, consequence = self._proven(finding, self.joined.get(remedy.commands, remedy))
            kept += [proven] if proven and proven not in kept else []
            reasons.append(consequence)
        is_untried = any(remedy.commands in self.untried for remedy in kept)
        if is_untried:
            finding = replace(finding, fix=f"{finding.fix} {_UNTRIED}")
        if kept == list(finding.remedies):
            return finding
        reason = reasons[0] if kept else next(filter(None, reasons), "")
        words = finding.fix if kept or not reason else without_release(finding.fix, finding.remedies[0])
        if reason and words != finding.fix:
            fix = f"{words} {reason[0].upper()}{reason[1:]}."
        elif reason:
            introduction = "Only the command fits the other steps" if kept else "This alone is not enough"
            fix = f"{finding.fix} {introduction}: {reason}."
        else:
            fix = finding.fix
        return replace(finding, fix=fix, remedies=tuple(kept))

    def _proven(self, finding: Finding, remedy: Remedy) -> tuple[Remedy | None, str]:
        """A remedy that has no consequence, or the first consequence."""
        first = trial = self._trial(finding, remedy)
        joined: Remedy | None = remedy
        for _ in range(_ROUNDS):
            if trial is None or trial.is_clean or joined is None:
                break
            is_final = trial.conflict and not trial.broken
            further = None if is_final else _joined(joined, trial.findings, (*trial.pins, *trial.broken))
            trial = self._trial(finding, further) if further else trial
            # A joined command that was not tried is no better than the one with a consequence.
            joined = None if trial is None else further
        if trial is None or trial.is_clean:
            return joined, ""
        known = {each.resolution.conflict for path in self.paths for each in path.context.trace.installs}
        is_known = trial.conflict in known - {""}  # no consequence: the steps have no solution without it either
        return None, "" if is_known else _consequence(remedy, first or trial)

    def _trial(self, finding: Finding, remedy: Remedy) -> _Trial | None:
        """The trial of a remedy; None for one that installs nothing, or that cannot be tried."""
        if not _installs(remedy):
            return None
        failing = self._failing(finding.line) if finding.id in _CONFLICTS else None
        found = failing or self._place(finding.line)
        if found is None:
            return None
        key = (*found, bool(failing), remedy.commands)
        if key not in self.tried and (conflict := "" if failing else self._contradiction(found, remedy)):
            self.tried[key] = _Trial(conflict, ())
        if key not in self.tried:
            is_possible = len(self.tried) < _MAX_COMMANDS and time.monotonic() < self.end
            path, is_quick = self.paths[found[0]], not is_possible
            tried = partial(self._try, path, found[1], remedy, is_part=bool(failing), is_quick=is_quick)
            self.tried[key] = tried() if time.monotonic() < self.end + _SECONDS else None
            is_stopped = self.tried[key] is None and self.is_solving and self.solver and self.solver.reason
            is_left = not is_possible and self.tried[key] is None
            self.untried |= {remedy.commands} if is_stopped or is_left else set()
        return self.tried[key]

    def _contradiction(self, found: tuple[int, int], remedy: Remedy) -> str:
        """Why the requirements of the environment have no solution with those of a remedy; empty if they have one."""
        path = self.paths[found[0]]
        last = path.context.guide.actions[found[1]]
        install = next((each for each in path.context.trace.installs if each.action.command == last.command), None)
        steps = installs_of(remedy)
        if install is None or any(step.no_deps or step.from_source for step in steps):
            return ""
        return contradiction(install, {_name(text): text for step in steps for text in step.packages}, self.solver)

    def _failing(self, line: int) -> tuple[int, int] | None:
        """The number of a path, and the index of its step without a solution that a line is part of."""
        found = ((number, path.failing(line)) for number, path in enumerate(self.paths))
        return next((each for each in found if each[1] >= 0), None)

    def _place(self, line: int) -> tuple[int, int] | None:
        """The number of a path, and the index of the action after which a command for a finding runs."""
        for is_own in (True, False):
            for number, path in enumerate(self.paths):
                if (index := path.place(line, is_own=is_own)) >= 0:
                    return number, index
        return None

    def _try(
        self, path: _Path, place: int, remedy: Remedy, *, is_part: bool = False, is_quick: bool = False
    ) -> _Trial | None:
        """The guide with a remedy after a step; with `is_part`, its packages in place of those of the step.

        With `is_quick`, only the rules of the tables are evaluated.
        """
        guide = path.context.guide
        line = len(guide.lines) + 1
        last = guide.actions[place]
        changes = [action for step in remedy.steps if (action := action_of(step, line, guide.actions))]
        tried = [with_requirements(last, changes)] if is_part or is_project(last) else [last, *changes]
        guide = guide._replace(
            actions=(*guide.actions[:place], *tried, *guide.actions[place + 1 :]),
            lines=(*guide.lines, " && ".join(remedy.commands)),
        )
        context = build_context(guide, self.machine, self.today, self.solver)
        resolutions = [each.resolution for each in context.trace.installs if each.action.line == line]
        if any(each.state == "unresolved" for each in resolutions):
            return None
        conflict = next((each.conflict for each in resolutions if each.state == "conflict"), "")
        changed = {name for each in path.found for other in each.remedies[:1] for name in _names(other)}
        package, broken = ("", "") if conflict else broken_requirement(context, line, _names(remedy), changed)
        conflict = conflict or broken
        pins = () if conflict else replaced_pins(context, line, {*changed, *_names(remedy)})
        left_out = _OF_STEPS if context.index_facts else _OF_STEPS | _CONFLICTS
        found = evaluate_guide(context, _OF_TABLES if is_quick else ())
        new = [each for each in found if each.status in PROBLEMS and each.id not in left_out]
        return _Trial(conflict, tuple(each for each in new if _key(each) not in path.known), pins,
                      (package,) if package else ())  # fmt: skip


def _key(finding: Finding) -> tuple[str, str, tuple[str, ...]]:
    """What a finding is about, without its place and the releases."""
    return finding.id, finding.cause, tuple(sorted({each.fact for each in finding.evidence}))


def _lines(action: InstallAction) -> tuple[int, ...]:
    return action.line, *(each.line for each in action.requirements)


def _joined(remedy: Remedy, consequences: Sequence[Finding], pins: Sequence[str]) -> Remedy | None:
    """A remedy of one command with the packages of the commands against its consequences, and with pins to keep."""
    if len(remedy.steps) != 1 or not isinstance(remedy.steps[0], Install):
        return None
    step = remedy.steps[0]
    packages = {_name(each): each for each in (*step.packages, *pins)}
    for finding in consequences:
        steps = finding.remedies[0].steps if finding.remedies else ()
        further = steps[0] if len(steps) == 1 else None
        if not isinstance(further, Install):
            return None
        if replace(further, packages=(), backend=step.backend) != replace(step, packages=()):
            return None
        added = {_name(each): each for each in further.packages}
        if any(not permits(packages.get(name, name), text) for name, text in added.items()):
            return None  # the consequence is that of the release itself
        packages |= added
    return remedy_of([replace(step, packages=tuple(packages.values()))])


def _name(requirement: str) -> str:
    found = parse_install_requirement(requirement, 0)
    return found.name if found else normalize_name(requirement)


def _names(remedy: Remedy) -> list[str]:
    return [_name(text) for step in installs_of(remedy) for text in step.packages]


def _consequence(remedy: Remedy, trial: _Trial) -> str:
    """What is wrong after a remedy, for its finding."""
    packages = dict.fromkeys(text for step in installs_of(remedy) for text in step.packages)
    with_packages = f"with {join_words([f'`{each}`' for each in packages])}"
    if trial.broken:
        return f"{with_packages}, what is installed no longer fits: {trial.conflict}"
    if trial.conflict:
        return f"{with_packages}, the steps have no solution: {trial.conflict}"
    if not trial.findings:
        return f"{with_packages}, the step replaces {join_words(trial.pins)} of the guide"
    message = min(trial.findings, key=lambda each: PROBLEMS.index(each.status)).message
    quoted = next((f"`{each}`: " for each in packages if message.startswith(f"`{each}`: ")), "")
    return f"{with_packages}, {message.removeprefix(quoted)}"
