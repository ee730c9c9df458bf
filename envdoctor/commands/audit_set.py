"""The audit of a solved set: as a script or a Dockerfile for its Python, its build of torch and its image."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date

from packaging.requirements import Requirement

from envdoctor.commands.audit_set_builds import rejected_builds
from envdoctor.commands.audit_set_index import free_packages, judge_by_index
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding, Machine
from envdoctor.core.remedies import Install
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.changed_names import removal_of
from envdoctor.knowledge.versions import public_part
from envdoctor.locking.solved_set import SetProblems, SolvedSet, requirement_lines
from envdoctor.manifests import audit_paths
from envdoctor.manifests.actions import Install as InstallAction
from envdoctor.manifests.actions import Run
from envdoctor.manifests.added_packages import missing_packages
from envdoctor.manifests.checks import evaluate_guide
from envdoctor.manifests.context import build_context
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.stated_machine import StatedMachine
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.step import StepProblem, StepSolution, StepSolver

_OF_CODE = frozenset({"RUN078", "RUN221", "RUN222"})  # names and calls of the programs of a checkout
_OF_OPTIONS = "RUN200"  # options of programs, among them fields of releases
_OF_CALLS = "RUN017"  # names that releases use in functions
_MAX_NOTES = 3
_RELEASE = lazy_pattern(r"(?<![\w.-])([a-z0-9][a-z0-9-]*) (\d[\w.]*\w|\d)(?= of \d{4}-)")
_USED = lazy_pattern(r" uses ([\w.]+) in a function, which ([a-z0-9-]+) ")
_EXCLUDED = lazy_pattern(r"\bexcludes ([a-z0-9-]+) (\d[\w.]*\w|\d), (?:which has it|for which the code)")
_OR_OLDER = lazy_pattern(r"\b([a-z][a-z0-9-]*) (\d[\w.]*) or older\b")
_BELOW = lazy_pattern(r"\b([A-Za-z][\w.-]*) below (\d[\w.]*\w|\d)")


class SolvedCommand:
    """A solver for the command of a set, whose packages are known."""

    reason = ""

    def __init__(self, solved: SolvedSet, index: IndexFacts | None) -> None:
        self.index = index
        built = frozenset(pin.partition("==")[0] for pin in solved.built)
        self.solution = StepSolution(solved.versions, solved.required_by, built)

    def __call__(self, problem: StepProblem) -> StepSolution:  # noqa: ARG002
        """The packages of the set."""
        return self.solution


def check_sets(
    machine: Machine | None,
    solver: StepSolver | None,
    stated: StatedMachine,
    guide: Guide | None = None,
    found: Sequence[Finding] = (),
) -> Callable[[SolvedSet], SetProblems]:
    """A check of solved sets with the facts of the audit that they come from, and with the programs of its guide.

    `found` are the findings of that audit: the time for the files of releases can be over when a set is checked.
    """

    def check(solved: SolvedSet) -> SetProblems:
        corrected = solved.corrected
        own = stated._replace(architecture=corrected.architecture, python="")
        paths = [path._replace(stated_machine=own) for path in paths_of_set(solved)]
        known = SolvedCommand(solved, solver.index) if solver and not solver.reason and solved.versions else None
        audit = audit_paths(paths[0], paths, machine, solver=known or solver)
        later = {each.name for each in corrected.dropped}  # built or installed after the set
        errors = [
            finding for finding in audit.findings
            if finding.status == "error" and later.isdisjoint(missing_packages([finding]))
        ]  # fmt: skip
        known_messages = {each.message for each in errors}
        errors += [each for each in _of_same_releases(found, solved) if each.message not in known_messages]
        # The driver and the build of torch are those of the guide: only another release is a matter of the set.
        warnings = [finding for finding in audit.findings if finding.status == "warning" and _limits([finding])]
        of_code = _names_of_code(guide, paths[0], machine, known) if guide and known else []
        is_free = free_packages(solved).__contains__
        cured = [each for each in of_code if any(is_free(Requirement(pin).name) for pin in _limits([each]))]
        calls = [each for each in audit.findings if each.id == _OF_CALLS and each.line and each.status == "info"]
        skipped = [each.message for each in audit.findings if each.message.startswith("not compared")]
        rejected = dict(rejected_builds(solved, known.index if known else None))
        needed, unfit = (rejected, {}) if is_free("torch") else ({}, rejected)
        of_index = judge_by_index(solved, known.index) if known and known.index else SetProblems()
        return SetProblems(
            tuple(each.message for each in errors),
            (*_limits([*errors, *warnings, *cured]), *of_index.pins, *needed.values()),
            (*(each.message for each in (*warnings, *cured)), *of_index.warnings, *needed),
            (*_shortened([*unfit, *(each.message for each in (*of_code, *calls) if each not in cured)]), *skipped),
            tuple(dict.fromkeys((*_limits(calls), *_releases_with_names(calls)))),
        )

    return check


def _of_same_releases(findings: Sequence[Finding], solved: SolvedSet) -> Iterator[Finding]:
    """The errors on names that a release lacks, if both releases of the finding are those of a set."""
    for each in findings:
        named = [(name, version) for name, version in _RELEASE.findall(each.message) if name in solved.versions]
        is_same = all(public_part(solved.versions[name]) == version for name, version in named)
        if each.id == _OF_CALLS and each.status == "error" and len(dict(named)) > 1 and is_same:
            yield each


def _releases_with_names(calls: Sequence[Finding]) -> Iterator[str]:
    """The last releases with names that a table shows to be removed, also where present packages exclude these."""
    for each in calls:
        if (found := _USED.search(each.message)) and (row := removal_of(found[1])) and row.package == found[2]:
            yield f"{row.package}=={row.last}"


def _names_of_code(guide: Guide, path: Guide, machine: Machine | None, solver: StepSolver) -> list[Finding]:
    """The names that the programs of a guide use, and that the packages of a set do not have."""
    if guide.checkout is None and not guide.python_blocks:
        return []
    runs = tuple(action for action in guide.actions if isinstance(action, Run))
    own = guide._replace(actions=(*path.actions, *runs), stated_machine=path.stated_machine)
    context = build_context(own, machine, date.today().isoformat(), solver)
    found = evaluate_guide(context, _OF_CODE | {_OF_OPTIONS})
    certain = [each for each in found if each.status in ("error", "warning")]
    return [each for each in certain if each.id != _OF_OPTIONS or _limits([each])]


def _shortened(messages: list[str]) -> tuple[str, ...]:
    more = len(messages) - _MAX_NOTES
    return (*messages[:_MAX_NOTES], *([f"{more} more such names"] if more > 0 else []))


def paths_of_set(solved: SolvedSet) -> list[Guide]:
    """The commands of a set as paths, whose builds have torch where tool.uv of the project adds it."""
    architecture, built = solved.corrected.architecture, frozenset(solved.corrected.built_with_torch)
    name, text = set_commands(solved)
    document = read_input(text, name, Files(None, architecture), architecture)
    return [
        path._replace(
            actions=tuple(
                each._replace(built_with_torch=built) if isinstance(each, InstallAction) else each
                for each in path.actions
            )
        )
        for path in document.paths
    ]


def set_commands(solved: SolvedSet) -> tuple[str, str]:
    """The name and the text of a file that installs a set."""
    corrected = solved.corrected
    packages = [*requirement_lines(solved), *solved.built]
    install = shell_command("uv pip install {} {}", solved.options, packages)
    if corrected.image and corrected.contained:
        return "Dockerfile", f"FROM {corrected.image}\nRUN {install}\n"
    python = solved.target.partition("Python ")[2].partition(",")[0]
    environment = shell_command("uv venv --python {} .venv", python)
    return "set.sh", f"#!/bin/bash\n{environment}\n. .venv/bin/activate\n{install}\n"


def _limits(findings: list[Finding]) -> list[str]:
    """The releases and missing packages that cure findings: of their first remedies, or of the words of a fix."""
    found: list[str] = []
    for each in findings:
        steps = (step for remedy in each.remedies[:1] for step in remedy.steps)
        packages = [text for step in steps if isinstance(step, Install) for text in step.packages]
        stated = [text for text in packages if re.search(r"[=<>]", text)] or missing_packages([each])
        # What excludes a release can be open in a set.
        stated = stated or [f"{name}=={version}" for name, version in _EXCLUDED.findall(each.fix)]
        stated = stated or [f"{name}<={version}" for name, version in _OR_OLDER.findall(each.fix)]
        found += stated or [f"{name}<{version}" for name, version in _BELOW.findall(each.fix) if name != "Python"]
    return list(dict.fromkeys(found))
