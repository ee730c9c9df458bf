"""Packages that a step takes from a local folder instead of an index: `pip install --no-index --find-links DIR`."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import Install
from envdoctor.resolution.requirement import (
    InstallRequirement,
    WheelName,
    parse_wheel_name,
    wheel_architecture,
)
from envdoctor.resolution.resolver import ResolvedPackage

LOCAL_FOLDER = "a local folder"  # origin of packages whose wheels are no published ones


def folder_of(text: str) -> str:
    """The path of a folder in one notation: `./wheels/` and `file:///wheels` as `wheels` and `/wheels`."""
    return posixpath.normpath(text.removeprefix("file://") or ".")


def from_local_folder(
    action: Install, wheels: Mapping[str, Sequence[str]], installed: Mapping[str, ResolvedPackage], platform: str
) -> Install:
    """A step without an index: its wheels as far as earlier steps put them in its folder.

    The content of the folder is not known otherwise: packages that are neither pinned nor installed have no version.
    """
    if not action.no_index:
        return action
    files = [file for folder in action.find_links for file in wheels.get(folder_of(folder), ())]
    requirements: list[InstallRequirement] = []
    unknown = list(action.unknown)
    for requirement in action.requirements:
        if requirement.url or requirement.pin:
            requirements.append(requirement)
        elif file := _wheel_for(requirement, files, platform):
            requirements.append(requirement._replace(url=file))
        elif requirement.name in installed:
            requirements.append(requirement)
        else:
            unknown.append(requirement)
    return action._replace(requirements=tuple(requirements), unknown=tuple(unknown), no_deps=True)


def _wheel_for(requirement: InstallRequirement, files: Sequence[str], platform: str) -> str:
    """The wheel of a requirement for a platform; empty without one."""
    for file in files:
        wheel = parse_wheel_name(file)
        if wheel and wheel.name == requirement.name and _fits(wheel, requirement, platform):
            return file
    return ""


def _fits(wheel: WheelName, requirement: InstallRequirement, platform: str) -> bool:
    architecture = wheel_architecture(wheel.platform_tag)
    return architecture in ("", platform) and satisfies(wheel.version, requirement.specifier) is not False
