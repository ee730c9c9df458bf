"""Resolves the requirements of an install step from the built-in release tables, without network access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from envdoctor.knowledge.published import PublishedRelease, is_newer_than_table, published_releases, releases_in_range
from envdoctor.knowledge.python_limits import can_install
from envdoctor.knowledge.releases import (
    Requirement,
    is_before_requirements,
    optional_specifier,
    parse_requirement,
    releases_of,
    requirements_of_release,
)
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY, TorchSource, may_provide

_MAX_ROUNDS = 300
_CACHED_RESULTS = 10_000
# setup.py of transformers 4.20 to 4.35 and of peft 0.1 to 0.7
_OLDER_REQUIREMENTS = {"transformers": ("numpy>=1.17",), "peft": ("numpy>=1.17",)}
_NEEDS_CUDA_BUILD = TORCH_FAMILY - {"triton", "pytorch-triton", "torchao", "torchdata", "torchtext"}


class ResolvedPackage(NamedTuple):
    """A package of an environment: its version, and the requirement and line of the guide that it comes from."""

    name: str
    version: str
    line: int
    reason: str  # the requirement as written, or "required by vllm"
    pinned: bool = False  # the guide names exactly this version
    cuda: str = ""  # of torch and its companions: "12.8", "cpu"
    origin: str = "PyPI"
    specifier: str = ""  # as written in the guide
    wheel: str = ""  # file name, if the guide names a wheel

    @property
    def is_dependency(self) -> bool:
        """Whether another package requires it, and the guide does not name it."""
        return self.reason.startswith("required by ")


class Bound(NamedTuple):
    """A version range of a package. `required_by` is empty for ranges of the guide itself."""

    specifier: str
    required_by: str
    line: int
    text: str


class Conflict(NamedTuple):
    """Version ranges of a package that no release satisfies together."""

    name: str
    bounds: tuple[Bound, ...]


class ResolverTarget(NamedTuple):
    """The environment that packages are resolved for. Dates are ISO days; "9" means no limit."""

    platform: str = "x86_64"
    python: str = ""
    glibc: str = ""
    exclude_newer: str = "9"
    period_end: str = "9"  # releases up to this day are contemporary with the guide
    source: TorchSource = TorchSource()


# How the versions of a step were determined, the most certain way first. "partial": the guide does not show all
# requirements. "unresolved": no package index was available. "conflict": there is no solution.
ResolutionState = Literal["solved", "tables", "partial", "unresolved", "conflict"]


class Resolution(NamedTuple):
    """The result of one install step."""

    packages: dict[str, ResolvedPackage]
    conflicts: tuple[Conflict, ...]
    state: ResolutionState = "tables"
    conflict: str = ""  # as the solver states it
    further_conflicts: tuple[str, ...] = ()  # of other requirements
    built: frozenset[str] = frozenset()  # packages of a solution that have no wheel for the target
    absent_extras: frozenset[tuple[str, str]] = frozenset()  # package and extra that its release does not have
    refused: Mapping[str, str] = {}  # packages of which pip accepts no release, with a requirement that it refuses


class _Reason(NamedTuple):
    """The requirement because of which a package is resolved."""

    line: int
    text: str
    pinned: bool = False
    specifier: str = ""

    def package(self, name: str, version: str) -> ResolvedPackage:
        return ResolvedPackage(name, version, self.line, self.text, self.pinned, specifier=self.specifier)


class Resolver:
    """A greedy resolver. If a release contradicts a pin, it tries an older release of the requiring package."""

    def __init__(
        self,
        target: ResolverTarget,
        installed: dict[str, ResolvedPackage],
        *,
        upgrade: bool,
        with_dependencies: bool,
        keeps_installed: bool = False,
    ) -> None:
        self.target = target
        self.installed = installed
        self.upgrade = upgrade
        self.with_dependencies = with_dependencies
        self.keeps_installed = keeps_installed  # installed packages that are required keep their own requirements
        self.excluded: dict[str, set[str]] = {}
        self.conflicts: dict[str, Conflict] = {}

    def resolve(
        self, requirements: Iterable[InstallRequirement], constraints: Iterable[InstallRequirement] = ()
    ) -> Resolution:
        """Resolve requirements and their dependencies. Packages that are not in the tables are left out."""
        from_index = [requirement for requirement in requirements if not requirement.url]
        limits = [constraint for constraint in constraints if constraint.specifier]
        for _ in range(_MAX_ROUNDS):
            packages = self._resolve_once(from_index, limits)
            if packages is not None:
                return Resolution(packages, tuple(self.conflicts.values()))
        packages = self._resolve_once(from_index, limits, last_round=True) or {}
        return Resolution(packages, tuple(self.conflicts.values()))

    def _resolve_once(
        self,
        requirements: list[InstallRequirement],
        constraints: list[InstallRequirement],
        *,
        last_round: bool = False,
    ) -> dict[str, ResolvedPackage] | None:
        """One pass; None if it excluded a release and must be repeated."""
        bounds: dict[str, list[Bound]] = {}
        # A range that is stated again adds nothing, and a file can state it 50,000 times.
        distinct = {(each.name, each.specifier): each for each in reversed((*requirements, *constraints))}
        for requirement in reversed(distinct.values()):
            bound = Bound(requirement.specifier, "", requirement.line, requirement.text)
            bounds.setdefault(requirement.name, []).append(bound)
        pins_first = sorted(requirements, key=lambda requirement: not requirement.pin)
        queue = list(dict.fromkeys(requirement.name for requirement in pins_first))
        reasons = {
            requirement.name: _Reason(
                requirement.line, requirement.text, bool(requirement.pin), requirement.specifier
            )
            for requirement in reversed(pins_first)
        }
        requested = {requirement.name: requirement for requirement in requirements}
        resolved: dict[str, ResolvedPackage] = {}
        while queue:
            name = queue.pop(0)
            package = self._select_release(
                name, bounds[name], reasons[name], upgrade=name in requested and self.upgrade
            )
            if package is None:
                if (
                    name not in self.conflicts
                    and not last_round
                    and self._backtrack(name, bounds, resolved, requested)
                ):
                    return None
                if (package := self._select_despite_conflict(name, bounds[name], reasons[name])) is None:
                    continue
            if name in resolved and resolved[name].version == package.version:
                continue
            resolved[name] = package
            if not self.with_dependencies:
                continue
            requiring = f"{name} {package.version}"
            for dependency in self._dependencies_to_resolve(package, requested.get(name)):
                text = f"{requiring} requires {dependency.name}{dependency.specifier}"
                bound = Bound(dependency.specifier, name, package.line, text)
                current = bounds.setdefault(dependency.name, [])
                if bound not in current:
                    bounds[dependency.name] = [*(other for other in current if other.required_by != name), bound]
                    reasons.setdefault(dependency.name, _Reason(package.line, f"required by {requiring}"))
                    queue.append(dependency.name)
        return resolved

    def _dependencies_to_resolve(
        self, package: ResolvedPackage, requirement: InstallRequirement | None
    ) -> list[Requirement]:
        """The dependencies; of an installed package that stays, those that are installed and must fit it."""
        extras = requirement.extras if requirement else ()
        dependencies = _dependencies_of(
            package.name, package.version, extras, self.target.python, self.target.platform
        )
        is_kept = package is self.installed.get(package.name) and requirement is None
        return [
            each for each in dependencies if not is_kept or (self.keeps_installed and each.name in self.installed)
        ]

    def _select_release(
        self, name: str, bounds: list[Bound], reason: _Reason, *, upgrade: bool
    ) -> ResolvedPackage | None:
        """The installed release if it satisfies all bounds, else the newest one; None if there is none."""
        specifiers = [bound.specifier for bound in bounds if bound.specifier]
        installed = self.installed.get(name)
        if installed and not upgrade and _accepts(installed.version, specifiers):
            return installed
        if version := _newest_usable(name, ",".join(specifiers), self.target, frozenset(self.excluded.get(name, ()))):
            return reason.package(name, version)
        pins = (_pinned_version(bound.specifier) for bound in bounds if not bound.required_by)
        pin = next((pin for pin in pins if pin), "")
        if pin and not published_releases(name):
            return reason.package(name, pin)
        is_unlisted = "+" in pin or "dev" in pin or is_newer_than_table(name, pin)
        if pin and is_unlisted and _accepts(pin, specifiers):
            return reason.package(name, pin)
        return None

    def _backtrack(
        self,
        name: str,
        bounds: dict[str, list[Bound]],
        resolved: dict[str, ResolvedPackage],
        requested: dict[str, InstallRequirement],
    ) -> bool:
        """Exclude the release of a package that requires `name`; False if all those packages are pinned."""
        for bound in self._by_blame(name, bounds[name]):
            package = resolved.get(bound.required_by)
            is_pinned = bound.required_by in requested and requested[bound.required_by].pin
            if not package or is_pinned or package is self.installed.get(bound.required_by):
                continue
            excluded = self.excluded.get(package.name, set()) | {package.version}
            specifier = ",".join(other.specifier for other in bounds[package.name] if other.specifier)
            releases = releases_in_range(package.name, specifier, self.target.exclude_newer)
            table = releases_of(package.name)  # a release that is not in it may contradict the same requirement
            if any(row.version not in excluded and (not table or row.version in table) for row in releases):
                self.excluded[package.name] = excluded
                return True
        self.conflicts[name] = Conflict(name, tuple(bounds[name]))
        return False

    def _by_blame(self, name: str, bounds: list[Bound]) -> list[Bound]:
        """The newest bounds first, and of those the ones without which a release satisfies the others."""

        def is_satisfiable_without(bound: Bound) -> bool:
            others = [other.specifier for other in bounds if other is not bound and other.specifier]
            return bool(releases_in_range(name, ",".join(others), self.target.exclude_newer))

        newest_first = bounds[::-1]
        newest_first.sort(key=lambda bound: not is_satisfiable_without(bound))
        return newest_first

    def _select_despite_conflict(self, name: str, bounds: list[Bound], reason: _Reason) -> ResolvedPackage | None:
        """The version pinned in the guide, else the newest release in its ranges, together or in the first one."""
        own = [bound.specifier for bound in bounds if not bound.required_by and bound.specifier]
        if pin := next(filter(None, map(_pinned_version, own)), ""):
            return reason.package(name, pin)
        ranges = dict.fromkeys((",".join(own), *own[:1]))
        found = (releases_in_range(name, each, self.target.exclude_newer) for each in ranges)
        version = next((releases[0].version for releases in found if releases), "")
        return reason.package(name, version) if version else None


# An audit resolves the same requirements up to hundreds of times, each time with another pin, and the search for a
# correction repeats these for each Python and path of a guide.
@lru_cache(_CACHED_RESULTS)
def resolve_with_fixed(
    target: ResolverTarget, requirements: tuple[InstallRequirement, ...], fixed: tuple[ResolvedPackage, ...]
) -> Resolution:
    """Resolve requirements and their dependencies, in an environment of packages that stay."""
    installed = {package.name: package for package in fixed}
    return Resolver(target, installed, upgrade=False, with_dependencies=True).resolve(requirements)


@lru_cache(_CACHED_RESULTS)
def _newest_usable(name: str, specifier: str, target: ResolverTarget, excluded: frozenset[str]) -> str:
    """The newest release in a range that the target can install, preferably from a wheel; empty if there is none."""
    releases = [
        row
        for row in releases_in_range(name, specifier, target.exclude_newer)
        if row.version not in excluded and _is_available(name, row, target)
    ]
    releases = [row for row in releases if can_install(name, row.version, target.python)] or releases
    with_wheel = (row for row in releases if row.has_wheel(target.platform, target.python, target.glibc))
    newest = next(with_wheel, None) or next(iter(releases), None)
    return newest.version if newest else ""


def _is_available(name: str, row: PublishedRelease, target: ResolverTarget) -> bool:
    """Whether the torch source of the step has this release."""
    source = target.source
    if name not in _NEEDS_CUDA_BUILD or not source.cuda or not source.has_priority or source.nightly:
        return True
    if source.cuda == "cpu":
        return True
    torch = row.version if name == "torch" else torch_of_companion(name, row.version)
    return not torch or may_provide(torch, source.cuda, target.platform, is_pinned=False)


@lru_cache(_CACHED_RESULTS)
def _dependencies_of(
    name: str, version: str, extras: tuple[str, ...], python: str, platform: str
) -> tuple[Requirement, ...]:
    texts = requirements_of_release(name, version) or _older_requirements(name, version)
    dependencies = [dependency for text in texts if (dependency := parse_requirement(text))]
    public = public_part(version)
    dependencies += [Requirement(extra, optional_specifier(name, public, extra)) for extra in extras]
    return tuple(
        dependency
        for dependency in dependencies
        if (dependency.specifier or dependency.name not in extras)
        and published_releases(dependency.name)
        and dependency.applies_to(python)
        and not is_for_x86_only(dependency, platform)
    )


def is_for_x86_only(dependency: Requirement, platform: str) -> bool:
    """The tables contain the requirements of x86_64. On Arm, dependencies without a wheel are not required."""
    if platform != "aarch64" or dependency.name in _NEEDS_CUDA_BUILD:
        return False
    releases = releases_in_range(dependency.name, dependency.specifier)
    return bool(releases) and not any(row.has_wheel("aarch64") or row.kind == "source" for row in releases)


def torch_of_companion(name: str, version: str) -> str:
    """The torch that a release of torchvision or torchaudio is built with; empty if it states none.

    torchaudio has the version of its torch, and from 2.11 on it states no requirement. torchvision requires exactly
    its torch, and from 0.29.1 on at least that.
    """
    if name == "torchaudio":
        return version
    lines = (parse_requirement(line) for line in requirements_of_release(name, version))
    specifier = next((line.specifier for line in lines if line and line.name == "torch"), "")
    found = re.match(r"[=>]=([\d.]+)", specifier)
    return found[1] if found else ""


def _older_requirements(name: str, version: str) -> tuple[str, ...]:
    """The requirements of a release that is older than the table of its package."""
    return _OLDER_REQUIREMENTS.get(name, ()) if is_before_requirements(name, version) else ()


def _pinned_version(specifier: str) -> str:
    match = re.fullmatch(r"===?([^*,]+)", specifier)
    return match[1] if match else ""


def _accepts(version: str, specifiers: list[str]) -> bool:
    """Whether a version satisfies all ranges. `==2.8.0` accepts 2.8.0+cu128."""
    return all(satisfies(version if "+" in part else public_part(version), part) is not False for part in specifiers)
