"""Checks on the GPU architectures for which the setup.py of a project on disk compiles an extension of torch."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence
from envdoctor.core.wording import join_words
from envdoctor.knowledge.architectures import Capability, architecture, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import first_toolkit_of_generation, toolkits, toolkits_for
from envdoctor.knowledge.versions import major_minor
from envdoctor.manifests.actions import OwnBuild, UseRunner
from envdoctor.manifests.checks.builds import torch_of_step
from envdoctor.manifests.checks.certainty import builds_in_isolation
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.gpu_code import GpuCode
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.rules.registry import Problem, rule

GENCODE = "https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/index.html#options-for-steering-gpu-code-generation"
_HOPPER = (9, 0)


@rule("RUN294", kind="guide", severity="error", cause="gpu-arch-not-in-build", url=GENCODE)
def toolkit_does_not_compile_for_a_named_gpu(context: GuideContext) -> Iterator[Problem]:
    """The flags of a setup.py name a GPU architecture that nvcc of the CUDA version of torch does not support.

    `nvcc fatal : Unsupported gpu architecture 'compute_70'`: CUDA 13 compiles for compute capability 7.5 and newer,
    CUDA 12 for 5.0. The build stops with a toolkit of another major version than that of torch as well.

    Fix: remove the flags of this architecture from setup.py, or install a torch for an older CUDA version.
    """
    for install, build, code in _builds(context):
        torch = torch_of_step(install)
        is_kept = install.action.no_build_isolation or install.action.tool == "conda"
        is_alone = not is_kept and (build.has_pyproject or builds_in_isolation(install) is not False)
        if is_alone or torch is None or torch.cuda in ("", "cpu") or install.before.resolution == "partial":
            continue
        major = major_minor(torch.cuda)[0]
        refused = [each for each in code.targets if not _compiles(major, each)]
        if not refused:
            continue
        line = line_of(context, install.action.line, build.url)
        names = join_words(refused)
        yield Problem(
            "error",
            f"`{build.url}` is compiled for {names}, which nvcc of CUDA {major} does not support; torch "
            f"{torch.version} is for CUDA {torch.cuda}",
            (
                guide_evidence(context, "command", install.action.command, line),
                _evidence_of_flags(code),
                guide_evidence(context, "torch", f"{torch.version} ({torch.reason})", torch.line),
            ),
            f"Remove the flags for {names} from setup.py, or install a torch for CUDA {_older(refused)}.",
            line=line,
        )


@rule("RUN295", kind="guide", severity=("error", "warning"), cause="gpu-arch-not-in-build", url=GENCODE)
def extension_has_no_code_for_the_gpu(context: GuideContext) -> Iterator[Problem]:
    """The flags of a setup.py compile for some GPUs only, and without PTX that newer ones can use.

    Its kernels stop with `no kernel image is available for execution on the device`. An error for the GPU of a
    machine that is given; a warning for the GPU that the guide names or, if it names none, for H100.

    Fix: add the architecture to the flags of nvcc in setup.py.
    """
    if any(each.has_no_gpu for each in context.actions(UseRunner)):
        return
    for install, build, code in _builds(context):
        gpus = context.build.capabilities or ((_HOPPER,) if _has_code_for_hopper(install) else ())
        lacking = [gpu for gpu in gpus if not runs_native(code.names, gpu) and not runs_as_ptx(code.names, gpu)]
        if not lacking:
            continue
        number = f"{lacking[0][0]}{lacking[0][1]}"
        which = "GPUs of" if context.build.capabilities else "H100, which has"
        newer = "" if context.build.capabilities else ", and newer GPUs"
        line = line_of(context, install.action.line, build.url)
        yield Problem(
            "error" if context.machine else "warning",
            f"setup.py of `{build.url}` compiles for {join_words(code.names)} only: no code for {which} compute "
            f"capability {number[:-1]}.{number[-1]}{newer}",
            (guide_evidence(context, "command", install.action.command, line), _evidence_of_flags(code)),
            f"For these GPUs, add -gencode=arch=compute_{number},code=sm_{number} to the flags in setup.py.",
            line=line,
        )


def _builds(context: GuideContext) -> Iterator[tuple[InstallStep, OwnBuild, GpuCode]]:
    """The projects on disk whose flags name architectures, each once."""
    seen: set[tuple[int, str]] = set()
    for install in context.trace.installs:
        for build in install.action.own_builds:
            key = (install.action.line, build.url)
            if build.gpu_code and key not in seen:
                seen.add(key)
                yield install, build, build.gpu_code


def _evidence_of_flags(code: GpuCode) -> Evidence:
    return table_evidence(f"setup.py:{code.line}", ", ".join(code.names), "the project next to it")


def _compiles(major: int, target: str) -> bool:
    """Whether a release of this major version compiles for an architecture; true for versions without a row."""
    found = architecture(target)
    known = {major_minor(row.cuda)[0] for row in toolkits()}
    return not found or major not in known or major in _majors(found[0])


def _majors(capability: Capability) -> set[int]:
    return {major_minor(row.cuda)[0] for row in toolkits_for(capability)}


def _older(refused: list[str]) -> str:
    """The major version that compiles for all of these architectures, or for the first."""
    majors = [_majors(found[0]) for each in refused if (found := architecture(each))]
    return str(max(set[int].intersection(*majors) or majors[0], default=""))


def _has_code_for_hopper(install: InstallStep) -> bool:
    """Whether the torch of a step can run on H100; also if no step installs one."""
    torch, first = torch_of_step(install), first_toolkit_of_generation(_HOPPER)
    cuda = torch.cuda if torch else ""
    is_old = cuda not in ("", "cpu") and first is not None and major_minor(cuda) < major_minor(first.cuda)
    return not is_old and cuda != "cpu"
