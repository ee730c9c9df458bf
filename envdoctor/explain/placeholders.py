"""Fills the placeholders of fixes and commands: `{torch|your torch}` is the version, or the text after the bar."""

from __future__ import annotations

import re

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import Notation, Remedy, either
from envdoctor.knowledge.versions import major_minor

PLACEHOLDER = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")
# Distributions by the names of modules, files and builds in error texts.
DISTRIBUTIONS = {
    "flash_attn": "flash-attn", "flash_attn_interface": "flash-attn-3", "xformers": "xformers", "vllm": "vllm",
    "sgl_kernel": "sgl-kernel", "bitsandbytes": "bitsandbytes", "causal_conv1d": "causal-conv1d",
    "mamba_ssm": "mamba-ssm", "selective_scan_cuda": "mamba-ssm", "torchvision": "torchvision",
    "torchaudio": "torchaudio", "apex": "apex", "transformer_engine": "transformer-engine", "deepspeed": "deepspeed",
    "awq_ext": "autoawq-kernels", "exllama": "exllama",
}  # fmt: skip
CUDA_BACKENDS = ("11.8", "12.4", "12.6", "12.8", "12.9", "13.0")  # CUDA versions on the PyTorch index


def fill_placeholders(text: str, values: dict[str, str]) -> str:
    """The text with its placeholders filled. Without value and default it is the name in capitals."""
    filled = PLACEHOLDER.sub(
        lambda match: values.get(match[1]) or (match[2] if match[2] is not None else match[1].upper()), text
    )
    return re.sub(r" {2,}", " ", filled).replace(" ;", ";").replace(" ,", ",").replace(" :", ":").strip()


def fill_remedies(remedies: Notation, values: dict[str, str]) -> tuple[Remedy, ...]:
    """The remedies of a table with their placeholders filled."""
    lines = ((each,) if isinstance(each, str) else each for each in remedies)
    return either(*([fill_placeholders(line, values) for line in each] for each in lines))


def distribution_of(name: str) -> str:
    """The distribution of a module or file name: flash-attn for `flash_attn_2_cuda.cpython-310...so`."""
    stem = name.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].lower()
    match = max((known for known in DISTRIBUTIONS if stem.startswith(known)), key=len, default="")
    return DISTRIBUTIONS.get(match, stem.replace("_", "-"))


def placeholder_values(machine: Machine, stack: Stack) -> dict[str, str]:
    """The values of placeholders: versions of distributions, driver and GPU."""
    values: dict[str, str | None] = {
        name.replace("-", "_"): distribution.version
        for name, distribution in (stack.distributions.value or {}).items()
    }
    gpus = machine.gpus.value or ()
    torch = stack.torch.value
    python = stack.python_version.value or ""
    values |= {
        "gpu": gpus[0].name.value if gpus else None,
        "cc": gpus[0].compute_capability.value if gpus else None,
        "driver": machine.driver.version.value,
        "driver_branch": (machine.driver.version.value or "").split(".")[0],
        "torch": torch.version.value if torch else values.get("torch"),
        "cuda": torch.cuda.value if torch else None,
        "python": python,
        "python_minor": ".".join(python.split(".")[:2]),
        "driver_backend": _backend(machine.driver.cuda.value),
    }
    return {name: value for name, value in values.items() if value}


def _backend(driver_cuda: str | None) -> str:
    """The newest CUDA backend of torch that a driver supports: "cu128" for 12.8."""
    if not driver_cuda or not re.fullmatch(r"\d+\.\d+", driver_cuda):
        return ""
    supported = [cuda for cuda in CUDA_BACKENDS if major_minor(cuda) <= major_minor(driver_cuda)]
    return "cu" + supported[-1].replace(".", "") if supported else ""
