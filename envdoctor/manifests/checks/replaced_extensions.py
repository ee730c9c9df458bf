"""Checks on extensions of torch that are compiled for a torch which a later step replaces."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.versions import minor_of, public_part
from envdoctor.manifests.checks.builds import BUILT_WITH_TORCH
from envdoctor.manifests.checks.evidence import guide_evidence, line_of
from envdoctor.manifests.checks.replaced_torch import correction_of_replaced_torch
from envdoctor.manifests.checks.replacements import is_certain
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

ABI = "https://docs.pytorch.org/docs/stable/cpp_extension.html"
# Their builds and wheels are for one minor release of torch.
_FOR_ONE_TORCH = BUILT_WITH_TORCH | {
    "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv", "pyg-lib", "mmcv", "mmcv-full",
    "detectron2", "pytorch3d", "natten",
}  # fmt: skip


@rule("RUN124", kind="guide", severity=("error", "warning"), cause="torch-abi-mismatch", url=ABI,
      needs=("python",))  # fmt: skip
def extension_is_built_for_a_torch_that_is_replaced(context: GuideContext) -> Iterator[Problem]:
    """An extension is compiled for a torch, and a later step installs another torch without the extension.

    Its modules load the libraries of torch, whose symbols differ between minor releases: the import fails with
    `undefined symbol`. RUN010 reports the replacement itself.

    Fix: install the extension after the last step that changes torch.
    """
    for position, install in enumerate(context.trace.installs):
        old, new = install.before.packages.get("torch"), install.after.packages.get("torch")
        is_known = install.resolution.state not in ("unresolved", "conflict")
        if not is_known or old is None or new is None or not _is_other_release(old, new):
            continue
        if install.before.resolution == "partial" and not is_certain(install, new):
            continue
        later = context.trace.installs[position + 1 :]
        for name in sorted(_FOR_ONE_TORCH & install.before.packages.keys()):
            extension = install.before.packages[name]
            is_kept = install.after.packages.get(name) == extension and extension.origin != IMAGE_ORIGIN
            if is_kept and not any(_reinstalls(each, name) for each in later):
                yield _outdated(context, install, extension, old, new)


def _is_other_release(old: ResolvedPackage, new: ResolvedPackage) -> bool:
    versions = minor_of(public_part(old.version)), minor_of(public_part(new.version))
    return old is not new and all(versions) and versions[0] != versions[1]


def _reinstalls(install: InstallStep, name: str) -> bool:
    return any(requirement.name == name for requirement in install.action.requirements)


def _outdated(
    context: GuideContext,
    install: InstallStep,
    extension: ResolvedPackage,
    old: ResolvedPackage,
    new: ResolvedPackage,
) -> Problem:
    line = line_of(context, extension.line, extension.reason)
    name, version = extension.name, extension.version
    pin = f"{name}=={version}" if version else name
    command = shell_command("uv pip install {} --no-build-isolation --reinstall-package {}", pin, name)
    replacing = line_of(context, new.line or install.action.line, "" if new.is_dependency else new.reason)
    fix, remedies = f"Install {name} after line {replacing}, without a wheel that was built before.", steps(command)
    if kept := correction_of_replaced_torch(context, install.after.name):
        fix, remedies = kept, ()
    return Problem(
        "error" if new.pinned or new.is_dependency else "warning",
        f"{name} is built for torch {old.version}, which line {replacing} replaces with torch {new.version}: "
        "its import fails with undefined symbols",
        (
            guide_evidence(context, name, extension.reason, extension.line),
            guide_evidence(context, "torch", old.reason, old.line),
            guide_evidence(context, "torch", new.reason, replacing),
        ),
        fix,
        () if extension.wheel or "+" in version else remedies,
        line=line,
    )
