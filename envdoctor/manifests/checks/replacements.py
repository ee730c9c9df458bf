"""Checks on what a later step does to what an earlier one chose."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.torch_builds import install_command, known_builds, torch_releases
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.resolver import ResolvedPackage
from envdoctor.manifests.torch_sources import aarch64_build, torch_source
from envdoctor.rules.registry import Problem, rule

ARM_TORCH = "https://github.com/pytorch/pytorch/issues/160162"
UV_TORCH = "https://docs.astral.sh/uv/guides/integration/pytorch/"
_FAMILY = ("torch", "torchvision", "torchaudio", "triton")
_LIBRARIES = (
    "vllm",
    "transformers",
    "trl",
    "peft",
    "numpy",
    "xformers",
    "flash-attn",
    "accelerate",
    "huggingface-hub",
)


@rule("RUN010", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=UV_TORCH)
def later_step_replaces_what_an_earlier_one_chose(context: GuideContext) -> Iterator[Problem]:
    """A later installation moves torch, triton or another pinned package, with exit code 0 and without a word.

    What was compiled for the earlier torch then misses symbols; a CUDA build may become another CUDA or the CPU one.
    """
    for install in context.trace.installs:
        for name in (*_FAMILY, *_LIBRARIES):
            old, new = install.before.packages.get(name), install.after.packages.get(name)
            if old and new and new is not old and _is_moved(name, old, new, install):
                yield _moved(context, install, old, new)


def _is_moved(name: str, old: ResolvedPackage, new: ResolvedPackage, install: InstallStep) -> bool:
    if new.wheel or old.wheel or not old.version or not new.version:
        return False
    if name == "torch" and old.cuda not in ("", "cpu") and new.cuda == "cpu":
        return True
    same = public_part(old.version) == public_part(new.version)
    if same or (old.line == new.line and old.reason == new.reason):
        return False
    decided = old.pinned or old.origin != "PyPI" or (bool(old.specifier) and not _keeps(old, new))
    if name in _FAMILY:
        return decided or (name != "torch" and "torch" in install.before.packages) or name == "torch"
    return decided and not new.pinned


def _keeps(old: ResolvedPackage, new: ResolvedPackage) -> bool:
    return satisfies(public_part(new.version), old.specifier) is not False


def _moved(context: GuideContext, install: InstallStep, old: ResolvedPackage, new: ResolvedPackage) -> Problem:
    line = line_of(
        context, new.line or install.action.line, new.reason if not new.reason.startswith("required") else ""
    )
    to_cpu = old.name == "torch" and old.cuda not in ("", "cpu") and new.cuda == "cpu"
    quiet = new.pinned and not to_cpu and old.origin == "PyPI"
    by = f"`{new.reason}`" if not new.reason.startswith("required") else f"what is {new.reason}"
    kept = (
        f"{old.name}=={public_part(old.version)}" if not is_prerelease(old.version) else f"{old.name} {old.version}"
    )
    users = "vllm" in install.after.packages
    return Problem(
        "warning" if quiet or (old.name not in _FAMILY) else "error",
        f"{by} replaces {_shown(old)} of line {old.line} by {_shown(new)}",
        (
            guide_evidence(context, old.name, f"{old.reason} ({old.origin})", old.line),
            guide_evidence(context, new.name, install.action.command, install.action.line),
        ),
        f"Install both in one command with {kept}, or give the later step a constraint file with {kept}.",
        (f"uv pip install {requirement_arguments(install)} '{kept}'",) if not is_prerelease(old.version) else (),
        line=line,
        cause="torch-cpu-build" if to_cpu else "vllm-torch-mismatch" if old.name == "torch" and users else "",
    )


def requirement_arguments(install: InstallStep) -> str:
    """What the step asks for, as words of a command."""
    return " ".join(f"'{requirement.text}'" for requirement in install.action.requirements[:6])


def _shown(package: ResolvedPackage) -> str:
    build = {"": "", "cpu": " for the CPU"}.get(package.cuda, f" for CUDA {package.cuda}")
    origin = "" if package.origin == "PyPI" else f" from {package.origin}"
    return f"{package.name} {package.version}{build}{origin}"


@rule("RUN011", kind="guide", severity="error", cause="torch-cpu-build", url=ARM_TORCH)
def torch_on_arm_is_the_cpu_build(context: GuideContext) -> Iterator[Problem]:
    """On aarch64, PyPI's torch is a CPU build up to 2.10; what needs libtorch_cuda.so then fails.

    vLLM, FlashAttention and bitsandbytes install beside it without a complaint.
    """
    if context.platform != "aarch64":
        return
    for install in context.trace.installs:
        old, new = install.before.packages.get("torch"), install.resolution.packages.get("torch")
        same = old and new and (old.version, old.cuda) == (new.version, new.cuda)
        if not new or same or new.cuda != "cpu" or torch_source(install.action).backend.startswith("cpu"):
            continue
        row = next(
            (row for row in reversed(guide_tables().pypi_torch) if satisfies(new.version, f">={row.first}")), None
        )
        build = aarch64_build(new.version, context.trace.driver, context.version("vllm"))
        latest = torch_releases()[build.torch].latest if build else ""
        command = (
            install_command(build).replace(latest, public_part(new.version))
            if build
            else "uv pip install 'torch>=2.11'"
        )
        line = line_of(context, new.line, new.reason if not new.reason.startswith("required") else "")
        yield Problem(
            "error",
            f"torch {new.version} from PyPI is a CPU build on aarch64 (`{new.reason}`); CUDA builds there begin "
            f"with 2.11",
            (
                guide_evidence(context, "torch", new.reason, line),
                table_evidence("torch on PyPI, aarch64", "cpu", row.source if row else "", row.date if row else ""),
            ),
            "Take torch from the PyTorch index first"
            + (f" (CUDA {build.cuda})" if build else "")
            + ", and keep it in every later step; or move to torch 2.11 or newer, whose PyPI wheel has CUDA.",
            (command,),
            line=line,
        )


@rule(
    "RUN012",
    kind="guide",
    severity="warning",
    cause="dependency-pin-violated",
    url="https://pytorch.org/get-started/locally/",
)
def nightly_build_is_another_one_each_day(context: GuideContext) -> Iterator[Problem]:
    """A nightly torch is not what the guide was written with, and those of its day are no longer there."""
    for install in context.trace.installs:
        source = torch_source(install.action)
        each = next((requirement for requirement in install.action.requirements if requirement.name == "torch"), None)
        if not each or not (source.nightly or "dev" in each.specifier):
            continue
        line = line_of(context, install.action.line, each.text)
        build = [
            row
            for row in known_builds()
            if row.platform == context.platform and (not source.cuda or row.cuda == source.cuda)
        ]
        stable = torch_releases()[build[-1].torch].latest if build else ""
        yield Problem(
            "warning",
            f"`{install.action.command[:120]}` installs today's nightly build; nightly builds are kept for some "
            f"weeks only",
            (guide_evidence(context, "torch", str(source), line),),
            f"Take a release: torch {stable} has a build for this processor and CUDA."
            if stable
            else "Take a release.",
            (install_command(build[-1]),) if build else (),
            line=line,
        )
