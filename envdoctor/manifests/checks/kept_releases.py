"""The correction of a step that would replace an installed package."""

from __future__ import annotations

from envdoctor.core.remedies import Remedy
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import is_prerelease, major_minor, public_part, satisfies
from envdoctor.manifests.checks.evidence import install_with
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.pinned_steps import resolve_with_pin
from envdoctor.manifests.step_resolution import COMPANIONS
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.step import apart
from envdoctor.resolution.torch_sources import cuda_builds


def keep_or_choose(
    context: GuideContext, install: InstallStep, old: ResolvedPackage, new: ResolvedPackage
) -> tuple[str, tuple[Remedy, ...]]:
    """The fix, and the command for it if one can be solved.

    The old release is kept if the step permits it. Otherwise the step needs the new one: in the build that the guide
    chose before.
    """
    pin = f"{old.name}=={public_part(old.version)}"
    backend = f"cu{old.cuda.replace('.', '')}" if old.name == "torch" and old.cuda not in ("", "cpu") else ""
    if not is_prerelease(old.version) and _can_keep(context, install, old, pin):
        kept_build = backend if old.origin.startswith("the PyTorch") else ""
        # The earlier step has installed what the builds of this one import.
        is_direct = install.action.no_build_isolation
        command = install_with(install, pin, backend=kept_build, without=old.name, no_build_isolation=is_direct)
        fix = f"Install both in one command with {pin}, or use a constraint file with {pin} in the later step."
        return fix, command
    needed = f"{new.name}=={public_part(new.version)}"
    requires = _requires(new)
    if old.origin == IMAGE_ORIGIN and not new.is_dependency and not new.pinned:
        return f"{install.before.image} contains {old.name}: omit it from this step.", ()
    if old.origin == IMAGE_ORIGIN:
        fix = f"{requires} {needed}, which is not the build of {install.before.image}. Use an image that contains "
        what = new.reason.removeprefix("required by ").replace(" ", "==") if new.is_dependency else needed
        return f"{fix}{what}, or keep the image's {old.name} and install a release that accepts it.", ()
    if old.name != "torch":
        return _install_earlier(context, f"{requires} {needed}", install, old, new)
    built = cuda_builds(new.version, context.platform)
    for_cuda_12 = [cuda for cuda in built if major_minor(cuda)[0] == 12]
    cuda = old.cuda if old.cuda in built else next(reversed(for_cuda_12 or built), "")
    if not cuda:
        return f"{requires} {needed}, which has no CUDA build for {context.platform}: use a newer release.", ()
    backend = f"cu{cuda.replace('.', '')}"
    companions = [name for name in COMPANIONS if name in install.before.packages.keys() - install.resolution.packages]
    place = context.guide.line_name(old.line)
    requirements = (each for step in context.trace.installs for each in step.action.requirements)
    named = {each.name for each in requirements if each.line == old.line}
    where = "before" if old.is_dependency else "without torch in" if named - {"torch", *COMPANIONS} else "in place of"
    return (
        f"{requires} {needed}. Install it for CUDA {cuda} in the same command, {where} {place}.",
        install_with(install, needed, *companions, backend=backend, without=old.name),
    )


def _install_earlier(
    context: GuideContext, start: str, install: InstallStep, old: ResolvedPackage, new: ResolvedPackage
) -> tuple[str, tuple[Remedy, ...]]:
    """The fix with the new release in the earlier step, unless the guide excludes that release there."""
    is_excluded = bool(old.specifier) and satisfies(public_part(new.version), old.specifier) is False
    if is_excluded and not old.is_dependency:
        place = context.guide.line_name(old.line)
        return f"{start}, which `{old.name}{old.specifier}` of {place} excludes: change one of them.", ()
    needed = f"{new.name}=={public_part(new.version)}"
    command = install_with(install, needed, without=old.name)
    return f"{start}: install that release in the earlier step.", command


def _requires(new: ResolvedPackage) -> str:
    """The beginning of a sentence on a release that a step needs. A range does not require the release itself."""
    if not new.is_dependency:
        return "This step requires"
    requiring = new.reason.removeprefix("required by ")
    name, _, version = requiring.partition(" ")
    bounds = (parse_requirement(text) for text in requirements_of_release(name, public_part(version)))
    is_exact = any(bound and bound.name == new.name and bound.specifier.startswith("==") for bound in bounds)
    return f"{requiring} requires" if is_exact else "This step resolves to"


def _can_keep(context: GuideContext, install: InstallStep, old: ResolvedPackage, pin: str) -> bool:
    """Whether the step has a solution with the old release, such as an older release of what requires the new one."""
    named = [each for each in install.action.requirements if each.name == old.name]
    if any(satisfies(public_part(old.version), each.specifier) is False for each in named):
        return False
    is_solved = install.resolution.state in ("solved", "partial")
    if is_solved and (resolution := resolve_with_pin(install, pin, apart(context.solver))):
        return resolution.state != "conflict"
    return bool(named) or not any(
        bound and bound.name == old.name and satisfies(public_part(old.version), bound.specifier) is False
        for package in install.resolution.packages.values()
        for bound in map(parse_requirement, requirements_of_release(package.name, public_part(package.version)))
    )
