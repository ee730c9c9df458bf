"""The torch and the setuptools that are installed before a build without isolation."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.knowledge.cxx_standards import standard_of_build, torch_that_compiles
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import setuptools_for
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement


def build_requirements(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement, missing: Sequence[str]
) -> list[str]:
    """The requirements for the `missing` packages of a build: torch is the one of the guide, or one that compiles."""
    package = install.resolution.packages.get(requirement.name)
    version = requirement.pin or (package.version if package and not requirement.url else "")
    torch = torch_of_steps(context, install, standard_of(f"{requirement.name}=={version}"))
    chosen = {"torch": torch, "setuptools": setuptools_for(install.before, torch.partition("==")[2])}
    return [chosen.get(name, name) for name in missing]


def torch_of_steps(context: GuideContext, install: InstallStep, standard: int) -> str:
    """The requirement for the torch that the step itself or a later one installs; any that compiles if none does."""
    requirement = named_torch(context)
    resolved = install.resolution.packages.get("torch")
    if requirement and resolved and install.resolution.state == "solved":
        return f"torch=={public_part(resolved.version)}"
    bound = torch_that_compiles(standard)
    return f"torch{requirement.specifier or bound}" if requirement else f"torch{bound}"


def standard_of(pin: str) -> int:
    """The C++ standard with which a release is compiled; 0 if it is unknown."""
    name, _, version = pin.partition("==")
    row = standard_of_build(name, version)
    return row.standard if row else 0


def named_torch(context: GuideContext) -> InstallRequirement | None:
    """The requirement for torch of the first step that names it."""
    named = (each for step in context.trace.installs for each in step.action.requirements)
    return next((each for each in named if each.name == "torch" and not each.url), None)
