"""Rule on NVIDIA's PyTorch containers next to a GPU for which NVIDIA does not document them."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import TEGRA, Capability, capability_of
from envdoctor.knowledge.images import NgcGpus, ngc_gpus, ngc_image_for, ngc_tag_of
from envdoctor.knowledge.versions import major_minor
from envdoctor.rules.facts import gpu_label, gpus_of, torch_version
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import version_evidence

IMAGE = "nvcr.io/nvidia/pytorch"


@rule("TORCH011", kind="environment", severity=("error", "warning"), cause="gpu-arch-not-in-build")
def nvidia_container_is_not_for_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """NVIDIA does not document this release of its PyTorch container for the GPU.

    Containers up to 24.12 are for compute capability 6.0 to 9.0, from 25.01 on for 7.5 and newer. On a Blackwell GPU
    the older ones have only PTX of torch's own kernels, and cuBLAS, cuDNN and other libraries from before that GPU:
    torch prints "sm_120 is not compatible with the current PyTorch installation". The newer ones have no code for
    Pascal and Volta: "no kernel image is available for execution on the device".

    Fix: use a release that is documented for the GPU; the finding names one.

    References:
    https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/
    https://docs.nvidia.com/deeplearning/triton-inference-server/release-notes/rel-25-01.html
    """
    tag = ngc_tag_of(torch_version(stack))
    gpus = ngc_gpus(tag) if tag else None
    if not gpus or (stack.torch.value and stack.torch.value.architectures.value):  # TORCH001 examines these
        return
    for gpu in gpus_of(machine):
        capability = capability_of(gpu)
        if not capability or capability in TEGRA or gpus.includes(capability):
            continue
        is_older = capability < major_minor(gpus.oldest)
        other = ngc_image_for(capability)
        yield Problem(
            "error" if is_older else "warning",
            f"{IMAGE}:{tag}-py3 is for compute capability {gpus.oldest} to {gpus.newest}; {gpu_label(gpu)} is "
            f"{'older' if is_older else 'newer'}",
            (
                Evidence(f"GPU {gpu.index}", gpu_label(gpu), machine.gpus.source),
                *version_evidence(stack, "torch"),
                Evidence(f"{IMAGE} from {gpus.first} on", f"{gpus.oldest} to {gpus.newest}", _source(gpus)),
            ),
            f"Use {IMAGE}:{other.tag}-py3, with torch {other.torch} for CUDA {other.cuda}, or a release near it."
            if other
            else "Use another GPU: NVIDIA documents no release of the container for this one.",
            steps(shell_command("docker pull {}:{}-py3", IMAGE, other.tag)) if other else (),
            cause="gpu-arch-dropped" if _had_code(gpus, capability) else "",
        )
        return


def _had_code(gpus: NgcGpus, capability: Capability) -> bool:
    """Whether an earlier release was for a GPU that is too old for this one."""
    return capability < major_minor(gpus.oldest) and ngc_image_for(capability) is not None


def _source(gpus: NgcGpus) -> str:
    return f"{gpus.source}, {gpus.date}"
