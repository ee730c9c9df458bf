"""The input of uv for an install step: requirements, limits, and placeholders for what no index has."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import find_release, published_releases
from envdoctor.knowledge.releases import leading_name
from envdoctor.knowledge.versions import is_prerelease
from envdoctor.locking.lock import Target
from envdoctor.locking.step_placeholders import newest_source_releases, wheels_of_torch_index
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import InstallRequirement, is_at_commit, parse_wheel_name
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.step import StepProblem
from envdoctor.resolution.torch_sources import TORCH_FAMILY

COMMIT = "commit"  # local version of a placeholder whose requirements are not known
_GLIBC = "2.35"  # of Ubuntu 22.04
INSTALLED = "installed"  # local version of a placeholder: uv distinguishes it from the release of an index
_MAIN_BRANCH = lazy_pattern(r"(git\+\w+://(?:[^/@]+@)?[^@#]+)(?:@(?:main|master|HEAD))?(#.*)?")
_VALID_NAME = lazy_pattern(r"[a-z0-9][a-z0-9-]*")


class StepQuestion(NamedTuple):
    """The input of uv for one step. Equal ones have equal solutions."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    overrides: tuple[str, ...]
    preferences: tuple[str, ...]
    placeholders: tuple[tuple[str, str], ...]
    python: str
    platform: str
    day: str
    with_dependencies: bool
    is_of_uv: bool = False

    @property
    def names(self) -> set[str]:
        """The packages that the step names."""
        return {leading_name(text) for text in self.requirements}

    @property
    def has_own_torch(self) -> bool:
        """Whether torch is a development build, as in NVIDIA's containers, whose torchvision is built for it."""
        return any(pin.startswith("torch==") and is_prerelease(pin.partition("==")[2]) for pin in self.preferences)

    def without(self, excluded: Container[str]) -> StepQuestion:
        """The question without some of its requirements."""
        return self._replace(requirements=tuple(each for each in self.requirements if each not in excluded))


def step_question(problem: StepProblem, index: IndexFacts | None = None) -> StepQuestion:
    """The input of uv for a step. With an index, forks are distinguished from the repositories of packages."""
    target = problem.target
    placeholders: dict[tuple[str, str], None] = {}
    lines: list[str] = []
    limits = [f"{each.name}{each.specifier}" for each in problem.constraints if each.specifier and not each.url]
    folders = {each.name for each in problem.requirements if each.name and _is_folder(each)}
    for requirement in problem.requirements:
        if requirement.name in folders and not _is_folder(requirement):
            continue  # the project in the folder, which an installer takes for its name as well
        version = _version_of_placeholder(requirement, index)
        if version:
            placeholders[requirement.name, version] = None
            lines.append(f"{requirement.name}=={version}")
        elif requirement.name and not requirement.url:
            lines.append(_text(requirement, _yanked_pin(requirement, problem)))
    overrides = tuple(_text(each) for each in problem.overrides if each.name and not each.url)
    preferences: list[str] = []
    for package in problem.installed.values():
        if not (version := _version_of_installed(package)) or not _VALID_NAME.fullmatch(package.name):
            continue
        if "+" in version:
            placeholders[package.name, version] = None
        if package.name not in problem.upgraded:
            preferences.append(f"{package.name}=={version}")
    placeholders |= dict.fromkeys(newest_source_releases(target.exclude_newer))
    wheels, newest = wheels_of_torch_index(problem)
    placeholders |= dict.fromkeys(wheels)
    # An index without the installed release is no reason to replace it.
    kept = {each.partition("==")[0] for each in preferences}
    limits += [f"{name}<={version}" for name, version in newest.items() if name not in kept]
    platform = Target(target.platform, target.glibc if re.fullmatch(r"2\.\d+", target.glibc) else _GLIBC, ()).platform
    return StepQuestion(
        tuple(dict.fromkeys(lines)), tuple(dict.fromkeys(limits)), overrides, tuple(sorted(preferences)),
        tuple(placeholders), target.python, platform,
        "" if target.exclude_newer.startswith("9") else target.exclude_newer, problem.with_dependencies,
        problem.is_of_uv,
    )  # fmt: skip


def _text(requirement: InstallRequirement, specifier: str = "") -> str:
    """A requirement in the notation of a requirements file."""
    return requirement.name_with_extras + (requirement.specifier or specifier)


def _yanked_pin(requirement: InstallRequirement, problem: StepProblem) -> str:
    """The pin of an installed release that was yanked: installers keep it, but uv prefers others to it."""
    installed = problem.installed.get(requirement.name)
    release = find_release(requirement.name, installed.version) if installed else None
    return f"=={release.version}" if release and release.yanked and requirement.name not in problem.upgraded else ""


def _version_of_placeholder(requirement: InstallRequirement, index: IndexFacts | None) -> str:
    """The version of a requirement that PyPI does not have: a wheel, a tag of a repository, a local version."""
    if requirement.wheel:
        wheel = parse_wheel_name(requirement.wheel)
        return _valid(wheel.version) if wheel else ""
    if requirement.url.startswith("file:"):
        return ""  # of the machine that wrote the requirement: any release
    if requirement.url:
        tag = re.search(r"@v?(\d+(?:\.\d+)+)(?:#|$)", requirement.url)
        release = find_release(requirement.name, tag[1]) if tag else None
        newest = _newest(requirement.name)
        if not newest and index and requirement.url.partition("#")[0].endswith(f"@{COMMIT}"):
            listed = index.newest_release(requirement.name)
            newest = listed.version if listed else ""
        if _is_folder(requirement):
            return f"{newest or 1}+{COMMIT}"  # PyPI's package of this name can be another one
        is_fork = index is not None and index.is_published_from(requirement.name, requirement.url) is False
        if is_at_commit(requirement.url) or is_fork:
            return f"{newest}+{COMMIT}" if newest else ""
        return release.version if release else newest
    is_unpublished = "+" in requirement.pin or ("dev" in requirement.pin and requirement.name in TORCH_FAMILY)
    return _valid(requirement.pin) if is_unpublished else ""


def with_unknown_branches(problem: StepProblem) -> StepProblem:
    """The step with main branches whose requirements are not known: they can differ from those of a release."""
    return problem._replace(requirements=tuple(map(_with_unknown_branch, problem.requirements)))


def _with_unknown_branch(requirement: InstallRequirement) -> InstallRequirement:
    branch = _MAIN_BRANCH.fullmatch(requirement.url)
    return requirement._replace(url=f"{branch[1]}@{COMMIT}{branch[2] or ''}") if branch else requirement


def _is_folder(requirement: InstallRequirement) -> bool:
    """Whether a requirement is a project on disk: `./package`, a member of a workspace of uv."""
    is_named = (
        requirement.name.strip(".") and requirement.url
    )  # `.` and setup.py do not state the name of the project
    return bool(is_named) and not requirement.wheel and not re.search(r"://|^git@", requirement.url)


def _version_of_installed(package: ResolvedPackage) -> str:
    """The version that uv keeps; with a local part if the package does not come from an index."""
    version = _valid(package.version) or _newest(package.name)
    is_of_index = package.origin == "PyPI" and not package.wheel and package.version
    return version if is_of_index or not version or "+" in version else f"{version}+{INSTALLED}"


def _valid(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return ""


def _newest(name: str) -> str:
    """The newest release of the tables, for a package from a repository."""
    return next((row.version for row in published_releases(name) if not is_prerelease(row.version)), "")
