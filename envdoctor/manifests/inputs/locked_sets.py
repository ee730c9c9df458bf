"""Corrected versions of a lock or of a list of installed packages, as a set that uv can solve."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.records import Machine, Stack
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests import CorrectedSet, audit_paths
from envdoctor.manifests.actions import Action, Install, SelectEnvironment
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.pieces import guide_of_actions
from envdoctor.manifests.inputs.records import OTHER, LockedPackage, PackageSet
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY

_NOT_INSTALLED = frozenset({"python", "pip"})


class CorrectedLock(NamedTuple):
    """A set with other versions of some locked packages, and those versions."""

    corrected: CorrectedSet
    changed: dict[str, str]


def set_of_stack(stack: Stack) -> PackageSet:
    """The packages of a list of installed packages."""
    distributions = (stack.distributions.value or {}).items()
    packages = tuple(
        LockedPackage(name, distribution.version, 0)
        for name, distribution in distributions
        if name not in _NOT_INSTALLED and distribution.version
    )
    return PackageSet("x86_64", stack.python_version.value or "", packages)


def correct_sets(
    sets: tuple[PackageSet, ...], name: str, named: Collection[str], direct: Collection[str], machine: Machine | None
) -> Iterator[CorrectedLock]:
    """The sets whose packages a correction changes. `named` are the packages that findings name.

    `direct` are the packages that the manifest requires, and all packages without a manifest: uv solves these.
    """
    seen = []
    for each in sets:
        found = _correct_set(each, name, named, direct, machine)
        key = (each.platform, each.python, found.changed) if found else None
        if found and key not in seen:
            seen.append(key)
            yield found


def _correct_set(
    packages: PackageSet, name: str, named: Collection[str], direct: Collection[str], machine: Machine | None
) -> CorrectedLock | None:
    locked = {package.name: package for package in packages.packages}
    guide = guide_of_set(packages, name, {*named, "torch"})
    corrected = audit_paths(guide, [guide], machine).main
    pins = dict(text.split("==", 1) for text in corrected.requirements if "==" in text)
    changed = {
        package: version
        for package, version in pins.items()
        if package not in locked or public_part(locked[package].version) != version
    }
    if not changed:
        return None
    kept = [package for package in packages.packages if package.name not in changed and _is_from_index(package)]
    solved = [package for package in kept if not direct or package.name in direct]
    new = [f"{package}=={version}" for package, version in changed.items()]
    exact = [f"{package.name}=={public_part(package.version)}" for package in solved]
    return CorrectedLock(
        replace(
            corrected,
            branch=packages.label,
            requirements=(*new, *exact),
            wanted=(*new, *(package.name for package in solved)),
            preferences=tuple(f"{package.name}=={public_part(package.version)}" for package in kept),
            exclude_newer="",
            profile_toml="",
        ),
        changed,
    )


def _is_from_index(package: LockedPackage) -> bool:
    """Whether an index has the package: not a repository, a path, a channel of conda, or a private build."""
    return package.origin == "PyPI" and ("+" not in package.version or package.name in TORCH_FAMILY)


def guide_of_set(packages: PackageSet, name: str, pinned: Collection[str]) -> Guide:
    """A guide that installs some packages of a set in the locked versions; the others follow from these."""
    python = [SelectEnvironment(1, "", "uv", ".venv", packages.python)] if packages.python else []
    installed = [package for package in packages.packages if package.name in pinned and package.origin != OTHER]
    actions: list[Action] = [*python]
    for tool in ("conda", "uv"):
        listed = [package for package in installed if (package.origin == "conda") is (tool == "conda")]
        requirements = tuple(
            InstallRequirement(each.name, f"=={each.version}", (), "", f"{each.name}=={each.version}", each.line)
            for each in listed
        )
        indexes = tuple(each.source for each in listed if each.name == "torch" and "/whl/" in each.source)
        if requirements:
            actions.append(Install(1, name, tool, requirements, extra_indexes=indexes))
    return guide_of_actions(actions, "", name, platform=packages.platform)
