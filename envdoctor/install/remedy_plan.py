"""Which remedies of findings envdoctor can apply, and the commands of uv that apply several of them together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Stack
from envdoctor.core.remedies import (
    Install,
    Remedy,
    RootCommand,
    SystemPackages,
    Uninstall,
    command_of,
    for_environment,
)
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.versions import satisfies

PROBLEMS = ("error", "warning")
State = Literal["planned", "fixed", "written", "failed", "manual"]


class FixedFinding(Record, frozen=True, kw_only=True):
    """One problem, and what happens to it.

    `planned`: its remedy will be applied. `fixed`: it was applied and the problem is gone. `written`: its variables
    are in a file, which new shells read. `failed`: it was not applied, with the reason. `manual`: it has no remedy
    that envdoctor can apply.
    """

    finding: str
    cause: str
    status: Literal["error", "warning"]
    problem: str
    state: State
    fix: str = ""
    commands: tuple[str, ...] = ()  # steps that envdoctor applies
    manual: tuple[str, ...] = ()  # steps for the user
    variables: tuple[str, ...] = ()  # lines for the shell files of --write
    reason: str = ""


class Application(Record, frozen=True):
    """A remedy that envdoctor can apply: its installs and removals, and its other steps, which are printed."""

    steps: tuple[Install | Uninstall, ...]
    manual: tuple[str, ...]


class Fixable(Record, frozen=True):
    """A finding with its alternatives that envdoctor can apply; none if it is for the user."""

    finding: Finding
    alternatives: tuple[Application, ...]

    def entry(self, state: State, choice: int = 0, reason: str = "") -> FixedFinding:
        """The record of this finding, with one of its alternatives."""
        finding = self.finding
        status: Literal["error", "warning"] = finding.status  # type: ignore[assignment]  # one of PROBLEMS
        chosen = self.alternatives[choice] if self.alternatives else None
        everything = tuple(command for remedy in finding.remedies for command in remedy.commands)
        return FixedFinding(
            finding=finding.id, cause=finding.cause, status=status, problem=finding.message, fix=finding.fix,
            commands=tuple(map(command_of, chosen.steps)) if chosen else (),
            manual=chosen.manual if chosen else everything,
            state=state, reason=reason,
        )  # fmt: skip


def fixable_findings(findings: Iterable[Finding], only: Sequence[str] = ()) -> list[Fixable]:
    """The problems among the findings, or those with the ids of `only`, with the remedies that can be applied."""
    return [
        Fixable(finding, tuple(filter(None, map(application, finding.remedies))))
        for finding in findings
        if finding.status in PROBLEMS and (not only or finding.id in only)
    ]


def application(remedy: Remedy) -> Application | None:
    """The steps of a remedy that envdoctor can apply; None if there are none, or if root must act before them."""
    steps: list[Install | Uninstall] = []
    manual: list[str] = []
    for step in remedy.steps:
        if isinstance(step, Install | Uninstall):
            steps.append(step)
        elif isinstance(step, RootCommand | SystemPackages) and not steps:
            return None
        else:
            manual.append(command_of(step))
    return Application(tuple(steps), tuple(manual)) if steps else None


def with_interpreter(findings: Iterable[Finding], python: str) -> list[Finding]:
    """The findings with the interpreter of installs, which otherwise act on the active environment or ./.venv."""
    return [
        msgspec.structs.replace(finding, remedies=for_environment(finding.remedies, python)) for finding in findings
    ]


def is_automatic(finding: Finding) -> bool:
    """Whether envdoctor can apply one of the remedies of a problem."""
    return finding.status in PROBLEMS and any(map(application, finding.remedies))


def combined_steps(chosen: Iterable[Application], python: str) -> list[Install | Uninstall]:
    """One removal and one install for all remedies, so that uv resolves their requirements together.

    An install with options that apply to all of its packages is a separate one.
    """
    steps = [step for each in chosen for step in each.steps]
    removed = tuple(dict.fromkeys(name for step in steps if isinstance(step, Uninstall) for name in step.packages))
    groups: dict[object, Install] = {}
    for step in steps:
        if isinstance(step, Install):
            key = (step.no_deps, step.no_build_isolation, tuple(sorted(step.variables.items())))
            groups[key] = _merged(groups[key], step) if key in groups else step
    installs = sorted(groups.values(), key=lambda step: (step.no_deps, step.no_build_isolation))
    uninstall = [Uninstall(packages=removed, python=python)] if removed else []
    return [*uninstall, *(msgspec.structs.replace(step, python=python) for step in installs)]


def _merged(one: Install, other: Install) -> Install:
    return msgspec.structs.replace(
        one,
        packages=tuple(dict.fromkeys((*one.packages, *other.packages))),
        backend=one.backend or other.backend,
        reinstall=tuple(dict.fromkeys((*one.reinstall, *other.reinstall))),
        from_source=tuple(dict.fromkeys((*one.from_source, *other.from_source))),
    )


def backend_conflict(chosen: Iterable[Application]) -> str:
    """Why remedies cannot be applied together although uv might resolve them; empty if they can."""
    backends = {step.backend: None for each in chosen for step in each.steps if isinstance(step, Install)}
    names = [name for name in backends if name]
    return f"the remedies install different builds of torch: {' and '.join(names)}" if len(names) > 1 else ""


def kept_requirements(stack: Stack, chosen: Iterable[Application]) -> tuple[str, ...]:
    """The requirements of installed packages that hold, and that an install should not violate.

    uv reads only those of the packages that it installs. The requirements of packages that a remedy names are left
    out: another version has other ones.
    """
    named = {
        normalize_name(re.split(r"[^\w.-]", package, maxsplit=1)[0])
        for each in chosen for step in each.steps for package in step.packages
    }  # fmt: skip
    versions = _versions(stack)
    found: dict[str, None] = {}
    for distribution in (stack.distributions.value or {}).values():
        for required in map(parse_requirement, distribution.requires if distribution.name not in named else ()):
            if required and required.specifier and _holds(versions.get(required.name), required.specifier):
                found[f"{required.name}{required.specifier}"] = None
    return tuple(found)


def _holds(version: str | None, specifier: str) -> bool:
    return version is None or satisfies(version, specifier) is True


def package_changes(before: Stack | None, after: Stack | None) -> tuple[str, ...]:
    """The packages that differ between two environments: `torch 2.9.0 -> 2.8.0`."""
    return changed_versions(_versions(before), _versions(after))


def changed_versions(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """The differences between versions by package."""
    return tuple(
        f"{name} {before.get(name, 'new')} -> {after.get(name, 'removed')}"
        for name in sorted(before | after)
        if before.get(name) != after.get(name)
    )


def _versions(stack: Stack | None) -> dict[str, str]:
    found = (stack.distributions.value or {}) if stack else {}
    return {name: each.version for name, each in found.items()}


def planned_changes(output: str) -> tuple[str, ...]:
    """The changes that `uv pip install --dry-run` prints: ` - torch==2.9.0` and ` + torch==2.8.0`."""
    lines = re.findall(r"^ ([-+~]) ([\w.-]+)==(\S+)", output, re.MULTILINE)
    before = {name: version for mark, name, version in lines if mark == "-"}
    after = {name: version for mark, name, version in lines if mark == "+"}
    again = tuple(f"{name} {version} again" for mark, name, version in lines if mark == "~")
    return (*changed_versions(before, after), *again)


def worse_findings(before: Iterable[Finding], after: Iterable[Finding]) -> list[Finding]:
    """Errors and warnings of rules that report more of them than before."""
    known, found = list(before), list(after)
    ids = {finding.id for finding in found}
    worse = {
        name for name in ids for kinds in (("error",), PROBLEMS)
        if _count(found, name, kinds) > _count(known, name, kinds)
    }  # fmt: skip
    return [finding for finding in found if finding.id in worse and finding.status in PROBLEMS]


def remaining_findings(
    chosen: Iterable[Fixable], before: Iterable[Finding], after: Iterable[Finding]
) -> list[Finding]:
    """Problems of the rules that reported the chosen findings, except those that were not to be fixed."""
    known, found, fixed = list(before), list(after), list(chosen)
    ids = {each.finding.id for each in fixed}
    others = {each.message for each in known if each not in [fixable.finding for fixable in fixed]}
    left = {
        name for name in ids
        if _count(found, name, PROBLEMS)
        > _count(known, name, PROBLEMS) - sum(each.finding.id == name for each in fixed)
    }  # fmt: skip
    return [each for each in found if each.id in left and each.status in PROBLEMS and each.message not in others]


def _count(findings: Iterable[Finding], name: str, kinds: Sequence[str]) -> int:
    return sum(finding.id == name and finding.status in kinds for finding in findings)
