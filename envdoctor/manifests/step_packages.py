"""What a step leaves in an environment: the packages that it names, and those of an image that pip keeps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.images import ngc_has_constraints
from envdoctor.knowledge.releases import required_specifier
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.actions import Install
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.environment_state import IMAGE_ORIGIN, EnvironmentState
from envdoctor.manifests.guide import Guide
from envdoctor.resolution.resolver import ResolvedPackage

_PART_OF_TORCH = lazy_pattern(r"triton$|(?:nvidia|cuda)-")  # of which each torch requires one release
_LIFTED = lazy_pattern(r"PIP_CONSTRAINT|/etc/pip/constraint")


def merge_requested(
    before: dict[str, ResolvedPackage], mentioned: dict[str, ResolvedPackage]
) -> dict[str, ResolvedPackage]:
    """A later mention of a package replaces an earlier one if it is a pin, or if the earlier one was not."""
    return before | {
        name: package
        for name, package in mentioned.items()
        if package.pinned or not (name in before and before[name].pinned)
    }


def newly_named(
    action: Install, resolved: dict[str, ResolvedPackage], installed: dict[str, ResolvedPackage]
) -> dict[str, ResolvedPackage]:
    """Installed dependencies that the guide now names itself, with the requirement that names them."""
    packages = {}
    for requirement in action.requirements:
        package = installed.get(requirement.name)
        if package and package is resolved.get(requirement.name) and package.is_dependency:
            packages[requirement.name] = package._replace(
                line=requirement.line,
                reason=requirement.text,
                pinned=bool(requirement.pin),
                specifier=requirement.specifier,
            )
    return packages


def with_new_packages(
    action: Install, installed: dict[str, ResolvedPackage], resolved: dict[str, ResolvedPackage]
) -> dict[str, ResolvedPackage]:
    """The packages after a step, without those that only a torch required which the step replaces, such as triton.

    The new torch requires its own releases of them, which a solution for a CPU build of it does not contain.
    """
    packages = installed | resolved
    old, new = installed.get("torch"), resolved.get("torch")
    is_same = old and new and public_part(old.version) == public_part(new.version)
    if not old or not new or is_same or action.no_deps or action.tool == "conda":
        return packages
    return {
        name: package
        for name, package in packages.items()
        if package is not installed.get(name)
        or not (_PART_OF_TORCH.match(name) and package.reason.startswith("required by torch "))
    }


def without_constrained(
    action: Install, before: EnvironmentState, resolved: dict[str, ResolvedPackage], guide: Guide
) -> dict[str, ResolvedPackage]:
    """The packages of a step, without the dependencies that the constraints of the image keep as they are."""
    if not has_constraints(action, before, guide):
        return resolved
    of_image = {name for name, package in before.packages.items() if package.origin == IMAGE_ORIGIN}
    new = [package for name, package in resolved.items() if name not in of_image or package.pinned]
    return {
        name: package
        for name, package in resolved.items()
        if name not in of_image or package.pinned or _is_exact(name, new)
    }


def has_constraints(action: Install, before: EnvironmentState, guide: Guide) -> bool:
    """Whether pip reads a file of the image that pins its packages, and the guide does not change that."""
    name, _, tag = before.image.partition(":")
    is_constrained = name.endswith("nvidia/pytorch") and ngc_has_constraints(tag)
    return is_constrained and action.tool == "pip" and not any(_LIFTED.search(line) for line in guide.lines)


def _is_exact(name: str, new: Sequence[ResolvedPackage]) -> bool:
    """Whether a release from the index requires one release of a package, as vLLM does; clones are built for any."""
    released = (each for each in new if each.origin != CLONE_ORIGIN)
    specifiers = (required_specifier(each.name, public_part(each.version), name) for each in released)
    return any(re.fullmatch(r"==[^,*]+", each) for each in specifiers)


def stated_build(package: ResolvedPackage, action: Install) -> str:
    """The version with the build that a step names: `torch==2.0.1+cu118`, which a solver finds as 2.0.1."""
    stated = next((each.pin for each in action.requirements if each.name == package.name), "")
    return stated if public_part(stated) == public_part(package.version) else package.version
