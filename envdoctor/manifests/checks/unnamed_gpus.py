"""Checks on the GPUs for which a build of torch has code, where the guide names no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.records import Evidence
from envdoctor.knowledge.architectures import architecture, runs_native
from envdoctor.knowledge.cuda import first_toolkit_of_generation, toolkit
from envdoctor.knowledge.torch_builds import KnownBuild, known_build, known_builds
from envdoctor.knowledge.versions import dotted_numbers, major_minor
from envdoctor.manifests.actions import UseImage, UseRunner
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

MATRIX = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix"
# Of each generation since Ampere, with the compute capability.
_GPUS = {"A100": (8, 0), "RTX 30": (8, 6), "RTX 40": (8, 9), "H100": (9, 0)}
# Builds for CUDA 11 start with torch 1.7: pytorch.org/get-started/previous-versions, 2026-11-26.
_FIRST_FOR_CUDA_11, _LAST_CUDA_BEFORE = (1, 7), "10.2"
_VOLTA_CUDA, _VOLTA = (9, 0), 7  # the first release with code for compute capability 7.0; older than the table


class _Coverage(NamedTuple):
    """The CUDA version of a build of torch, and the GPUs that it has code for."""

    cuda: str
    newest: int  # the major version of its newest native code, which the GPUs of that major version run
    missing: tuple[str, ...]  # of _GPUS
    evidence: Evidence


@rule("RUN240", kind="guide", severity=("warning", "info"), cause="gpu-arch-not-in-build", url=MATRIX)
def build_has_no_code_for_newer_gpus(context: GuideContext) -> Iterator[Problem]:
    """The build of torch has no code for H100 and newer GPUs, and the guide names no GPU.

    A warning for builds for CUDA 10 and older, which have code for no GPU since A100. Not for a machine that is
    given, for runners without a GPU, for CPU builds, and for builds of conda-forge, Anaconda and NVIDIA, which can
    have PTX for later GPUs.
    """
    has_no_gpu = any(each.has_no_gpu for each in context.actions(UseRunner))
    if context.machine or context.guide.stated_machine.gpu or has_no_gpu:
        return
    seen: set[tuple[str, str]] = set()
    for environment in context.environments:
        torch = environment.state.packages.get("torch")
        coverage = _coverage(context, torch) if torch and torch.version else None
        if not torch or not coverage or "H100" not in coverage.missing or _is_there_before(context, torch):
            continue
        version = torch.version.partition("+")[0]
        if (version, coverage.cuda) in seen:
            continue
        seen.add((version, coverage.cuda))
        line = line_of(context, torch.line, torch.reason)
        yield Problem(
            "warning" if len(coverage.missing) == len(_GPUS) else "info",
            f"torch {version} for CUDA {coverage.cuda} has code for GPUs up to compute capability "
            f"{coverage.newest}.x, and none for {', '.join(coverage.missing)} and newer",
            (guide_evidence(context, "torch", torch.reason, line), coverage.evidence),
            f"For these GPUs, use torch {_first(context.platform)} or newer, if the code permits it.",
            line=line,
        )


def _is_there_before(context: GuideContext, torch: ResolvedPackage) -> bool:
    """Whether only a project whose setup.py imports torch requires it: another step has installed some release."""
    builds = (
        build
        for each in context.trace.installs
        if each.action.line == torch.line and "torch" not in each.before.packages
        for build in each.action.own_builds
    )
    return not torch.pinned and any(name == "torch" for build in builds for name, _ in build.imports)


def _coverage(context: GuideContext, torch: ResolvedPackage) -> _Coverage | None:
    """The GPU code of the build by the tables, else what its CUDA version can compile for; None if not known."""
    minor = ".".join(torch.version.partition("+")[0].split(".")[:2])
    build = known_build(minor, torch.cuda, context.platform) if torch.origin != "conda" else None
    if build:
        return None if build.ptx else _of_build(build)
    is_before = dotted_numbers(minor) < _FIRST_FOR_CUDA_11
    cuda = torch.cuda or (_LAST_CUDA_BEFORE if is_before else "")
    is_known = cuda not in ("", "cpu") and major_minor(cuda) >= _VOLTA_CUDA
    return _of_cuda(cuda) if is_known and _is_of_pytorch(context, torch) else None


def _of_build(build: KnownBuild) -> _Coverage:
    code = table_evidence(f"torch {build.torch}, CUDA {build.cuda}", ", ".join(build.architectures), build.source)
    newest = max(found[0] for each in build.architectures if (found := architecture(each)))
    return _Coverage(build.cuda, newest[0], _without_code(build), code)


def _of_cuda(cuda: str) -> _Coverage:
    """What nvcc of a CUDA version can compile for. The PTX for sm_37 of old builds runs no library of NVIDIA.

    PyTorch reports newer GPUs as not compatible with these builds: github.com/pytorch/pytorch/issues/57922.
    """
    row = toolkit(major_minor(cuda))
    first = {name: first_toolkit_of_generation(gpu) for name, gpu in _GPUS.items()}
    missing = tuple(name for name, each in first.items() if each and major_minor(each.cuda) > major_minor(cuda))
    newest = major_minor(row.newest)[0] if row else _VOLTA
    limits = ", ".join(f"{name} since {each.cuda}" for name, each in first.items() if each and name in missing)
    source = "CUDA toolkit release notes"
    return _Coverage(cuda, newest, missing, table_evidence("first CUDA with code", limits, source))


def _is_of_pytorch(context: GuideContext, torch: ResolvedPackage) -> bool:
    """Whether PyTorch made the build: a wheel, a package of its channel of conda, or one of its images."""
    if torch.origin == IMAGE_ORIGIN:
        return all(each.name.endswith("pytorch/pytorch") for each in context.actions(UseImage))
    if torch.origin != "conda":
        return True
    steps = (each.action for each in context.trace.installs if each.action.tool == "conda")
    channels = next((each.channels for each in steps if any("torch" in one.text for one in each.requirements)), ())
    return "pytorch" in channels and "conda-forge" not in channels[: channels.index("pytorch")]


def _without_code(build: KnownBuild) -> tuple[str, ...]:
    return tuple(name for name, gpu in _GPUS.items() if not runs_native(build.architectures, gpu))


def _first(platform: str) -> str:
    """The first release with code for all of these GPUs, and its CUDA version."""
    builds = (each for each in known_builds() if each.platform == platform and not _without_code(each))
    first = next(builds)
    return f"{first.torch} for CUDA {first.cuda}"
