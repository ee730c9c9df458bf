"""Checks on the GPUs for which a build of torch has code, where the guide names no GPU."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.architectures import architecture, runs_native
from envdoctor.knowledge.torch_builds import KnownBuild, known_build, known_builds
from envdoctor.manifests.actions import UseRunner
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

MATRIX = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix"
# Of each generation since Ampere, with the compute capability.
_GPUS = {"A100": (8, 0), "RTX 30": (8, 6), "RTX 40": (8, 9), "H100": (9, 0)}


@rule("RUN240", kind="guide", severity="info", cause="gpu-arch-not-in-build", url=MATRIX)
def build_has_no_code_for_newer_gpus(context: GuideContext) -> Iterator[Problem]:
    """The build of torch has no code for H100 and newer GPUs, and the guide names no GPU.

    Not for a machine that is given, for runners without a GPU, for CPU builds, and for those of conda, which can
    have PTX that the tables do not list.
    """
    has_no_gpu = any(each.has_no_gpu for each in context.actions(UseRunner))
    if context.machine or context.guide.stated_machine.gpu or has_no_gpu:
        return
    seen: set[tuple[str, str]] = set()
    for environment in context.environments:
        torch = environment.state.packages.get("torch")
        if not torch or torch.origin == "conda":
            continue
        version = torch.version.partition("+")[0]
        build = known_build(".".join(version.split(".")[:2]), torch.cuda, context.platform)
        missing = _without_code(build) if build and not build.ptx else []
        if not build or "H100" not in missing or (version, build.cuda) in seen:
            continue
        seen.add((version, build.cuda))
        line = line_of(context, torch.line, torch.reason)
        yield Problem(
            "info",
            f"torch {version} for CUDA {build.cuda} has code for GPUs up to compute capability {_newest(build)}, and "
            f"none for {', '.join(missing)} and newer",
            (
                guide_evidence(context, "torch", torch.reason, line),
                table_evidence(
                    f"torch {build.torch}, CUDA {build.cuda}", ", ".join(build.architectures), build.source
                ),
            ),
            f"For these GPUs, use torch {_first(build.platform)} or newer, if the code permits it.",
            line=line,
        )


def _without_code(build: KnownBuild) -> list[str]:
    return [name for name, gpu in _GPUS.items() if not runs_native(build.architectures, gpu)]


def _newest(build: KnownBuild) -> str:
    """The major version of the newest native code, which the GPUs of that major version run."""
    return f"{max(found[0] for each in build.architectures if (found := architecture(each)))[0]}.x"


def _first(platform: str) -> str:
    """The first release with code for all of these GPUs, and its CUDA version."""
    builds = (each for each in known_builds() if each.platform == platform and not _without_code(each))
    first = next(builds)
    return f"{first.torch} for CUDA {first.cuda}"
