"""Checks on projects that a guide installs from the main branch of their repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import Requirement, normalize_name, parse_requirement
from envdoctor.knowledge.versions import are_disjoint, public_part, satisfies
from envdoctor.manifests.actions import Clone, directory_of_clone
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, python_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import evaluate_version_rules, version_rules
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.main_branches import MAIN_BRANCH
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.resolution.index_facts import IndexedRelease, IndexFacts
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

VCS = "https://pip.pypa.io/en/stable/topics/vcs-support/"
_BUILDS = lazy_pattern(r"\bpip3? install\b|\bpip wheel\b|\bsetup\.py\b|\buv (?:sync|build)\b|-m build\b")
_MAX_REASONS = 3
_MAX_REQUIRING = 16  # packages of the guide of which the requirements are read


class _Source(NamedTuple):
    """A project at its main branch: its name, the line that installs it, and the environment before that."""

    name: str
    url: str
    text: str
    line: int
    state: EnvironmentState


class _Reason(NamedTuple):
    """Why the newest release does not fit, with evidence."""

    about: str  # a package, or Python
    text: str
    evidence: tuple[Evidence, ...]


@rule(
    "RUN080", kind="guide", severity="warning", cause="dependency-pin-violated", url=VCS, needs=("python", "release")
)
def main_branch_does_not_fit(context: GuideContext) -> Iterator[Problem]:
    """A project from its main branch needs other releases of today than the guide installs.

    The newest release on the index stands for the main branch. The guide was written for the commit of its day: name
    a tag or a commit.
    """
    index = context.index_facts
    if index is None:
        return
    seen: set[str] = set()
    for source in (*_cloned(context), *_from_git(context)):
        newest = index.newest_release(source.name) if source.name not in seen else None
        if newest is None or not index.is_published_from(source.name, source.url):
            continue
        seen.add(source.name)
        found = {each.about: each for each in reversed(list(_conflicts(context, index, source, newest)))}
        reasons = sorted(found.values(), key=lambda each: (each.about not in TORCH_FAMILY, each.about))
        if reasons:
            yield _misfit(context, source, newest, reasons[:_MAX_REASONS])


def _cloned(context: GuideContext) -> Iterator[_Source]:
    """The clones without a reference whose directory a later step builds or installs."""
    actions = context.actions(Clone)
    for position, clone in enumerate(actions):
        following = actions[position + 1 : position + 2]
        is_pinned = clone.reference or any(each.reference and not each.url for each in following)
        directory = directory_of_clone(clone.url)
        line = _build_line(context, clone.line, directory) if directory and not is_pinned else 0
        if line:
            yield _Source(normalize_name(directory), clone.url, clone.command, line, _state_before(context, line))


def _build_line(context: GuideContext, start: int, directory: str) -> int:
    """The line of the command that builds the directory of a clone; 0 if there is none."""
    is_inside = False
    for command in context.guide.commands:
        if command.line < start:
            continue
        if command.name == "cd" and len(command.words) > 1:
            is_inside = command.words[1].rstrip("/").rpartition("/")[2] == directory
        elif _BUILDS.search(command.text) and (
            f"{directory}/" in f"{command.text}/" or (is_inside and _is_of_directory(command.words))
        ):
            return command.line
    return 0


def _is_of_directory(words: tuple[str, ...]) -> bool:
    """Whether a command reads the current directory: `pip install -e .`, `-r requirements/cuda.txt`, `setup.py`."""
    return any(re.match(r"\.(?:\[|$|/)|-r$|setup\.py$|sync$|build$", word) for word in words)


def _from_git(context: GuideContext) -> Iterator[_Source]:
    """The requirements such as `git+https://github.com/huggingface/transformers`."""
    for install in context.trace.installs:
        for each in install.action.requirements:
            if each.name and MAIN_BRANCH.fullmatch(each.url):
                yield _Source(each.name, each.url, each.text, each.line, install.before)


def _state_before(context: GuideContext, line: int) -> EnvironmentState:
    following = next((each.before for each in context.trace.installs if each.action.line >= line), None)
    if following is not None:
        return following
    return context.trace.installs[-1].after if context.trace.installs else EnvironmentState()


def _conflicts(
    context: GuideContext, index: IndexFacts, source: _Source, newest: IndexedRelease
) -> Iterator[_Reason]:
    """What the newest release needs and the environment does not have."""
    state = source.state
    packages = {name: each for name, each in state.packages.items() if each.version and name != source.name}
    python = state.python or context.trace.python
    markers = Markers(python, context.platform)
    if state.python and newest.requires_python and satisfies(f"{python}.99", newest.requires_python) is False:
        evidence = python_evidence(context, state)
        yield _Reason(
            "Python", f"needs Python {newest.requires_python}, and the environment has {python}", (evidence,)
        )
    needed = {each.name: each for each in _requirements(index, markers, newest.name, newest.version)}
    for name, each in needed.items():
        package = packages.get(name)
        if package and _is_kept(package) and _is_excluded(package.version, each):
            text = f"needs {name}{each.specifier}, and {_shown(package)} is installed"
            yield _Reason(name, text, _of(context, package))
    named = [each for each in packages.values() if not each.is_dependency and each.origin != "conda"]
    for package in named[:_MAX_REQUIRING]:
        for each in _requirements(index, markers, package.name, package.version):
            if each.name == source.name and _is_excluded(newest.version, each):
                text = f"is not what {_shown(package)} requires, {each.name}{each.specifier}"
                yield _Reason(package.name, text, _of(context, package))
            elif each.name in needed and are_disjoint(each.specifier, needed[each.name].specifier):
                text = f"needs {each.name}{needed[each.name].specifier}, and {_shown(package)} requires {each.name}"
                yield _Reason(each.name, f"{text}{each.specifier}", _of(context, package))
    yield from _broken_rules(context, source, newest, packages)


def _of(context: GuideContext, package: ResolvedPackage) -> tuple[Evidence, ...]:
    return (guide_evidence(context, package.name, package.reason, package.line),)


def _requirements(index: IndexFacts, markers: Markers, name: str, version: str) -> Iterator[Requirement]:
    for text in markers.applicable(index.requires(name, version)):
        if (found := parse_requirement(text)) and found.specifier:
            yield found


def _is_kept(package: ResolvedPackage) -> bool:
    """Whether the guide wants this release: an installer may take another one of an open requirement."""
    return package.pinned or package.name in TORCH_FAMILY


def _is_excluded(version: str, requirement: Requirement) -> bool:
    return satisfies(public_part(version), requirement.specifier) is False


def _shown(package: ResolvedPackage) -> str:
    return f"{package.name} {package.version}"


def _broken_rules(
    context: GuideContext, source: _Source, newest: IndexedRelease, packages: dict[str, ResolvedPackage]
) -> Iterator[_Reason]:
    """The rules about releases that the newest one breaks in this environment."""
    machine = context.machine or build_machine(context.trace)
    main = ResolvedPackage(newest.name, newest.version, source.line, source.text, pinned=True)
    stack = build_stack(source.state, {**packages, newest.name: main})
    for violation in evaluate_version_rules(machine, stack, version_rules()):
        message, evidence = violation.problem.message, violation.problem.evidence
        if f"{newest.name} {newest.version}" in message:
            about = next((each.fact for each in evidence if each.fact in packages), "")
            if about and _is_kept(packages[about]):  # an installer replaces another release of a mere dependency
                yield _Reason(about, f"does not fit: {message}", evidence)


@rule(
    "RUN173", kind="guide", severity="warning", cause="dependency-pin-violated", url=VCS, needs=("python", "release")
)
def requirement_excludes_that_of_main_branch(context: GuideContext) -> Iterator[Problem]:
    """A step installs a release that a project from its main branch, of the same or an earlier step, excludes.

    The newest release on the index stands for the main branch. pip refuses both in one step; in a later step it
    replaces the release that the project needs.
    """
    index = context.index_facts
    for position, install in enumerate(context.trace.installs if index else ()):
        for source in install.action.requirements:
            is_main = source.name and MAIN_BRANCH.fullmatch(source.url) and not install.action.no_deps
            newest = index.newest_release(source.name) if is_main and index else None
            if index and newest and index.is_published_from(source.name, source.url):
                python = install.before.python or context.trace.python
                needed = _needed(index, newest, source.extras, Markers(python, context.platform))
                for later in context.trace.installs[position:]:
                    if later.before.name == install.before.name and later.before.image == install.before.image:
                        yield from _excluding(context, source, newest, needed, later)


def _needed(
    index: IndexFacts, newest: IndexedRelease, extras: Sequence[str], markers: Markers
) -> dict[str, Requirement]:
    """What a release requires, with the requirements of its extras."""
    environment = markers.environment
    of_extras = [
        Markers(environment["python_full_version"], environment["platform_machine"], extra) for extra in extras
    ]
    found = (each for of in (markers, *of_extras) for each in _requirements(index, of, newest.name, newest.version))
    return {each.name: each for each in found}


def _excluding(
    context: GuideContext, source: InstallRequirement, newest: IndexedRelease, needed: dict[str, Requirement],
    install: InstallStep,
) -> Iterator[Problem]:  # fmt: skip
    """The requirements of a step that exclude what the newest release needs."""
    for each in install.action.requirements:
        bound = needed.get(each.name)
        if not bound or not each.specifier or each.url or not are_disjoint(each.specifier, bound.specifier):
            continue
        line = line_of(context, each.line, each.text)
        required = f"{bound.name}{bound.specifier}"
        yield Problem(
            "warning",
            f"`{each.text}`: {source.name} of its main branch needs {required} (its newest release {newest.version})",
            (
                guide_evidence(context, each.name, each.text, line),
                guide_evidence(context, source.name, source.text, source.line),
                table_evidence(str(newest), f"requires {required}", "the package index"),
            ),
            f"Name the tag or the commit of {source.name} that fits {each.text}, or take {required}.",
            line=line,
        )


def excluding_branch(context: GuideContext, state: EnvironmentState, name: str) -> str:
    """The project from its main branch that excludes a package of a state; empty without one."""
    index, package = context.index_facts, state.packages.get(name)
    for source in _from_git(context) if index and package else ():
        newest = index.newest_release(source.name) if index and source.state.name == state.name else None
        if not (index and package and newest and index.is_published_from(source.name, source.url)):
            continue
        markers = Markers(state.python or context.trace.python, context.platform)
        required = _requirements(index, markers, newest.name, newest.version)
        if any(each.name == name and _is_excluded(package.version, each) for each in required):
            return source.name
    return ""


def _stated_day(state: EnvironmentState) -> str:
    """The day of the newest release that the guide pins; empty if it pins none of the tables."""
    pinned = (each for each in state.packages.values() if each.pinned)
    rows = (find_release(each.name, public_part(each.version)) for each in pinned)
    return max((row.date for row in rows if row), default="")


def _misfit(context: GuideContext, source: _Source, newest: IndexedRelease, reasons: list[_Reason]) -> Problem:
    text = "; it ".join(each.text for each in reasons)
    day = _stated_day(source.state)
    age = f" (of today; the newest pin of the guide is of {day})" if day and day < newest.day else ""
    return Problem(
        "warning",
        f"the main branch of {source.name} is installed{age}: its newest release {newest.version} {text}",
        (
            guide_evidence(context, source.name, source.text, source.line),
            table_evidence(f"{newest.name} {newest.version}", reasons[0].text, "the package index", newest.day),
            *(item for each in reasons for item in each.evidence),
        ),
        "Name the tag or the commit that the guide was written for.",
        line=source.line,
    )
