"""The torch and the setuptools that are installed before a build without isolation."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.cxx_standards import rejecting_headers, standard_of_build, torch_that_compiles
from envdoctor.knowledge.releases import leading_name, parse_requirement
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.build_needs import needs_of_build
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import setuptools_for
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage

_LOCAL_BUILD = lazy_pattern(r"^torch==[\w.]+\+(cu\d+|cpu)$")
_IMPORTS_TORCH = lazy_pattern(r"(?m)^\s{0,80}(?:import|from) torch\b")


def build_requirements(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement, missing: Sequence[str]
) -> list[str]:
    """The requirements for the `missing` packages of a build: torch is the one of the guide, or one that compiles."""
    package = install.resolution.packages.get(requirement.name)
    version = requirement.pin or (package.version if package and not requirement.url else "")
    torch = torch_of_steps(context, install, standard_of(f"{requirement.name}=={version}"))
    chosen = {"torch": torch, "setuptools": setuptools_for(install.before, torch.partition("==")[2])}
    return [chosen.get(name, name) for name in missing]


def tools_of_build(
    context: GuideContext, install: InstallStep, package: ResolvedPackage, first: Sequence[str]
) -> list[str]:
    """The `first` tools of a build without isolation with what its archive requires, in the releases of the guide.

    A release that requires torch can compile for it: the step must not replace that torch later. Without torch, mmcv
    is built without its operators.
    """
    python, index = install.before.python or context.trace.python, context.index_facts
    texts = {leading_name(each): each for each in needs_of_build(context, package.name, package.version, python)}
    texts |= {leading_name(each): each for each in first}
    requires = index.requires(package.name, package.version) if index else ()
    files = index.build_files(package.name, package.version) if index else None
    is_for_torch = files is not None and bool(_IMPORTS_TORCH.search(files.setup))
    if is_for_torch or "torch" in (*texts, *map(leading_name, requires)):
        texts.pop("torch", "")
        before, after = (each.packages.get("torch") for each in (install.before, install.resolution))
        is_replaced = before and after and public_part(after.version) != public_part(before.version)
        if after and is_replaced:
            texts = {"torch": f"torch=={public_part(after.version)}", **texts}
        elif before is None:
            standard = standard_of(f"{package.name}=={package.version}")
            later = _torch_of_last_step(context, install, standard)
            texts = {"torch": later or torch_of_steps(context, install, standard), **texts}
    return [_pinned(install, name, text) for name, text in texts.items()]


def install_command(texts: Sequence[str]) -> str:
    """The command that installs tools, with the backend of a torch whose build PyPI does not have."""
    found = next(filter(None, map(_LOCAL_BUILD.search, texts)), None)
    return shell_command("uv pip install {}", [*texts, *([f"--torch-backend={found[1]}"] if found else [])])


def _torch_of_last_step(context: GuideContext, install: InstallStep, standard: int) -> str:
    """The pin of the torch that the steps leave in the environment, if it compiles the standard; empty if unknown."""
    last = [each for each in context.trace.installs if each.after.name == install.after.name][-1].after
    torch = last.packages.get("torch")
    if torch is None or last.resolution not in ("solved", "partial") or rejecting_headers(standard, torch.version):
        return ""
    is_of_index = torch.origin.startswith("the PyTorch index") and "." in torch.cuda
    return f"torch=={public_part(torch.version)}" + (f"+cu{torch.cuda.replace('.', '')}" if is_of_index else "")


def _pinned(install: InstallStep, name: str, text: str) -> str:
    """A requirement for the release that the step pins, if it permits that."""
    own, stated = install.resolution.packages.get(name), parse_requirement(text)
    is_permitted = own and own.pinned and stated and satisfies(own.version, stated.specifier or ">=0")
    return f"{name}=={public_part(own.version)}" if own and is_permitted else text


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
