"""Lowers what a rule reports to `unknown` where the guide does not give the evidence that the rule declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.knowledge.images import UBUNTU_WITH_OLD_PIP, has_old_pip
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import WITHOUT_COMMAND, Install
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.shell_records import Command
from envdoctor.manifests.step_resolution import other_indexes
from envdoctor.resolution.requirement import is_at_commit
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import GUIDE_RULES, Need, Problem, Rule

STATE_PYTHON = "State the Python with --python. "
_SERIOUS = ("error", "warning")
_ISOLATING_PIP = "25.3"  # setup.py without isolation ended with it: NEWS of pip, 2026-11-26
# The pages of PyTorch have its own packages, and the address of a release's files lists none.
_WITHOUT_WHEELS = lazy_pattern(
    r"https?://(?:(?:download(?:-r2)?|data)\.pytorch\.org/|github\.com/.*/releases/download/?$)"
)
# The rules that report incompatible releases: those of a range, and pins.
_OF_BREAKS = frozenset({"RUN003", "RUN004"})
_BREAK = lazy_pattern(r"[A-Z]+\d+")  # the rule of an incompatibility: NPY001
_PACKAGE = lazy_pattern(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")  # no rule, path or name of a module
_LAST_OLD_PYTHON = "3.8"  # whose last pip is 25.0
# ensurepip of Python 3.9 and 3.10 installs a pip between 20.2 and 23.0.1 in an environment of venv: the wheels in
# Lib/ensurepip of CPython at the tags of both lines, 2026-11-26. virtualenv installs a new one.
_SEEDED_WITH_OLD_PIP = ">=3.9,<3.11"


_SYNCS = (("poetry", "install"), ("poetry", "sync"), ("pdm", "install"), ("pdm", "sync"), ("uv", "sync"))


class _Gap(NamedTuple):
    """Evidence that is not there: the reason, and what to state or to check."""

    reason: str
    state: str


def with_evidence(context: GuideContext, rule: Rule, problem: Problem) -> Problem:
    """The problem, or the same as `unknown` with the evidence that it lacks."""
    if problem.status not in _SERIOUS:
        return problem
    for need in rule.needs:
        gap = _GAPS[need](context, problem) if need in _GAPS and need not in problem.proven else None
        if gap:
            return replace(
                problem,
                status="unknown",
                message=f"{problem.message} (not certain: {gap.reason})",
                fix=f"{gap.state} {problem.fix}".strip(),
            )
    return problem


def depends_on_python(finding: Finding, context: GuideContext) -> bool:
    """Whether an error or a warning depends on releases that can be others with another Python of the guide."""
    registered = GUIDE_RULES.get(finding.id)
    needs_python = registered is not None and "python" in registered.needs
    is_open = not all(_is_fixed(item.fact, context) for item in finding.evidence)
    return finding.status in _SERIOUS and needs_python and is_open


def _is_fixed(fact: str, context: GuideContext) -> bool:
    """Whether a fact is no package, or one whose release the guide names for each Python."""
    if not _PACKAGE.fullmatch(fact):
        return True
    states = [each.state for each in context.environments if fact in each.state.packages]
    named = [each for action in context.actions(Install) for each in action.requirements if each.name == fact]
    is_pinned = bool(states) and all(each.packages[fact].pinned for each in states)
    return is_pinned and not any(each.marker for each in named)


def confirmed(
    findings: Sequence[Finding],
    context: GuideContext,
    other: GuideContext,
    evaluate: Callable[[GuideContext, Collection[str]], list[Finding]],
) -> list[Finding]:
    """The findings for an assumed Python: those that another Python does not have become `unknown`.

    With the same releases there, a finding holds there as well. Of the others, `evaluate` runs the rules again.
    A Python for which a step has no solution shows nothing about it.
    """
    dependent = [each for each in findings if depends_on_python(each, context)]
    dependent = [each for each in dependent if _has_solution(each, other) or not _has_solution(each, context)]
    differing = [each for each in dependent if not _has_same_releases(each, context, other)]
    if not differing:
        return list(findings)
    identifiers = {each.id for each in differing}
    again = evaluate(other, identifiers | (_OF_BREAKS if identifiers & _OF_BREAKS else set()))
    also = {place for each in again if each.status in _SERIOUS for place in _places(each)}
    reason = f"the guide names no Python, and with Python {other.trace.python} this does not occur"
    return [
        replace(
            each,
            status="unknown",
            message=f"{each.message} (not certain: {reason})",
            fix=each.fix if each.fix.startswith(STATE_PYTHON) else f"{STATE_PYTHON}{each.fix}".strip(),
        )
        if each in differing and also.isdisjoint(_places(each))
        else each
        for each in findings
    ]


def _has_solution(finding: Finding, context: GuideContext) -> bool:
    """Whether the step of a finding has a solution with the Python of a context."""
    step = step_of(context, finding.line, {item.fact for item in finding.evidence})
    return step is not None and step.resolution.state not in ("conflict", "unresolved")


def _places(finding: Finding) -> Iterator[tuple[object, ...]]:
    """What two findings for different Pythons have in common: their line, or the incompatibility of releases.

    The release of a dependency that one Python permits is chosen by it in one case, and by a pin in the other.
    """
    yield finding.line, finding.id, finding.cause
    if finding.id in _OF_BREAKS:
        yield from ((item.fact, finding.cause) for item in finding.evidence if _BREAK.fullmatch(item.fact))


def _has_same_releases(finding: Finding, context: GuideContext, other: GuideContext) -> bool:
    names = [item.fact for item in finding.evidence]
    return all(context.version(name) == other.version(name) for name in names)


def step_of(context: GuideContext, line: int, names: Collection[str] = ()) -> InstallStep | None:
    """The step that a line belongs to: the one with this requirement, else the last one before it.

    Of the steps of a script, which have the line of its command, the one that names one of the packages.
    """
    steps = context.trace.installs
    named = [step for step in steps if any(each.line == line for each in step.action.requirements)]
    of_package = (step for step in named if any(each.name in names for each in step.action.requirements))
    earlier = [step for step in steps if step.action.line <= line]
    return next(of_package, named[0] if named else earlier[-1] if earlier else None)


def builds_in_isolation(install: InstallStep) -> bool | None:
    """Whether a project without a pyproject.toml is built in isolation: by uv, and by pip from 25.3 on.

    None if the release of pip is not known: in an image without a date, and where venv installs an old one. The
    reader of a list without a command can install it in any way.
    """
    action, before = install.action, install.before
    if action.no_build_isolation or action.tool == "conda" or action.only_binary:
        return False
    if action.tool == "uv" or action.command in WITHOUT_COMMAND:
        return True if action.tool == "uv" else None
    pip = before.packages.get("pip")
    if version := pip.version if pip else before.pip:
        return satisfies(version, f">={_ISOLATING_PIP}")
    if before.python and satisfies(before.python, f"<={_LAST_OLD_PYTHON}.99"):
        return False
    if before.tool == "image":
        return False if _has_old_pip(install) else None
    is_seeded = before.tool == "venv" and before.python and satisfies(before.python, _SEEDED_WITH_OLD_PIP)
    return None if is_seeded else True


def _has_old_pip(install: InstallStep) -> bool:
    """Whether an image, or the package of Ubuntu in it, has a pip from before 25.3, next to setuptools and wheel."""
    name, _, tag = install.before.image.partition(":")
    packages = install.system_packages
    is_of_ubuntu = "python3-pip" in packages and not any(re.fullmatch(r"python3\.\d+", each) for each in packages)
    return has_old_pip(name, tag) or (is_of_ubuntu and install.before.system in UBUNTU_WITH_OLD_PIP)


def _unread_wheels(context: GuideContext, problem: Problem) -> _Gap | None:
    facts = {item.fact for item in problem.evidence}
    step = step_of(context, problem.line, facts)
    if step and any(each.url and each.name in facts for each in step.action.requirements):
        return None  # a repository or a folder is built, whatever an index has
    pages = [url for url in other_indexes(step.action) if not _WITHOUT_WHEELS.match(url)] if step else []
    return (
        _Gap(f"the wheels of {pages[0]} were not read", f"Check whether {pages[0]} has a wheel.") if pages else None
    )


def _unknown_release(context: GuideContext, problem: Problem) -> _Gap | None:
    facts = {item.fact for item in problem.evidence}
    for environment in context.environments:
        for name in facts & environment.state.packages.keys():
            package = environment.state.packages[name]
            if "nightly" in package.origin or _is_commit(package):
                return _Gap(f"the release of {name} that `{package.reason}` installs is not known", "")
            if not package.pinned and (url := _unread_index(context, package)):
                return _Gap(f"the index {url} was not read", "")
            if package.is_dependency and (sync := _unread_sync(context, package)):
                command = f"`{sync.text[:60]}` of line {sync.line}"
                return _Gap(f"{command} is not read, and can install another release of {name}", "")
    return None


def _unread_index(context: GuideContext, package: ResolvedPackage) -> str:
    """The index that replaces PyPI in the step of a package, if its content is not known; empty without one.

    A variable can stand for any index, also for one of PyTorch.
    """
    step = next((each for each in context.trace.installs if package in each.resolution.packages.values()), None)
    unread = other_indexes(step.action) if step else []
    return next((url for url in unread if step and url == step.action.index_url), "")


def _unread_sync(context: GuideContext, package: ResolvedPackage) -> Command | None:
    """A command before the step of a package that installs the lock of a project, which is not read."""
    read = {each.action.line for each in context.trace.installs}
    commands = (each for each in context.guide.commands if each.line < package.line and each.line not in read)
    return next((each for each in commands if each.words[:2] in _SYNCS), None)


def _is_commit(package: ResolvedPackage) -> bool:
    return not package.version and is_at_commit(package.reason[max(package.reason.find("git+"), 0) :])


def _unknown_isolation(context: GuideContext, problem: Problem) -> _Gap | None:
    step = step_of(context, problem.line)
    if step is None or builds_in_isolation(step) is not None:
        return None
    if step.action.command in WITHOUT_COMMAND:
        return _Gap("no command installs the list", "State how it is installed.")
    image = re.sub(r"^.*/", "", step.before.image) or f"an environment of venv with Python {step.before.python}"
    return _Gap(
        f"the release of pip in {image} is not known, and pip before {_ISOLATING_PIP} builds without isolation",
        "State the release with `pip install pip==`.",
    )


def _unknown_toolkit(context: GuideContext, problem: Problem) -> _Gap | None:
    step = step_of(context, problem.line)
    reason = "the machine can have a toolkit that the guide does not name"
    return _Gap(reason, "State the CUDA toolkit.") if step and not step.before.image else None


_GAPS: dict[Need, Callable[[GuideContext, Problem], _Gap | None]] = {
    "wheels": _unread_wheels,
    "release": _unknown_release,
    "isolation": _unknown_isolation,
    "toolkit": _unknown_toolkit,
}
