"""Complete training stacks, each with one fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from support.report_stack import make_machine, torch_stack

from envdoctor.core.records import Machine, Stack

H100 = "NVIDIA H100 80GB HBM3"
DRIVER = "580.95.05"

# Sets that were resolved, installed or used for training, from profiles and measurements.
STACKS = {
    "HF": """torch 2.5.1+cu124, torchvision 0.20.1+cu124, torchaudio 2.5.1+cu124, triton 3.1.0, transformers 4.56.2,
        trl 0.22.2, peft 0.17.1, accelerate 1.11.0, datasets 4.2.0, bitsandbytes 0.48.1, numpy 2.3.4""",
    "vLLM 0.10": """torch 2.8.0+cu128, torchvision 0.23.0+cu128, torchaudio 2.8.0+cu128, triton 3.4.0, vllm 0.10.2,
        xformers 0.0.32.post1, transformers 4.57.1, trl 0.23.1, peft 0.17.1, accelerate 1.11.0, datasets 4.3.0,
        kernels 0.10.4, liger-kernel 0.6.3, bitsandbytes 0.48.1, numpy 2.2.6, huggingface-hub 0.36.0""",
    "vLLM 0.12": """torch 2.9.0+cu128, torchvision 0.24.0+cu128, torchaudio 2.9.0+cu128, triton 3.5.0, vllm 0.12.0,
        trl 0.27.1, transformers 4.57.6, accelerate 1.12.0, peft 0.18.0, bitsandbytes 0.48.2""",
    "vLLM 0.26": """torch 2.11.0+cu130, torchvision 0.26.0+cu130, torchaudio 2.11.0+cu130, triton 3.6.0, vllm 0.26.0,
        trl 1.16.0, transformers 5.17.0, accelerate 1.15.0, peft 0.21.0, liger-kernel 0.8.5, bitsandbytes 0.50.2""",
}


class Fault(NamedTuple):
    """Packages that replace or extend a stack, and the machine. A version `+cpu` replaces the build."""

    packages: str = ""
    gpu: str = H100
    driver: str = DRIVER


FAULTS = {
    "no fault": Fault(),
    "CPU build of torch": Fault("torch +cpu"),
    "RTX 5090": Fault(gpu="NVIDIA GeForce RTX 5090"),
    "V100": Fault(gpu="Tesla V100-SXM2-32GB"),
    "GTX 1080 Ti": Fault(gpu="NVIDIA GeForce GTX 1080 Ti"),
    "driver 525": Fault(gpu="NVIDIA GeForce RTX 4090", driver="525.60.13"),
    "driver 550": Fault(gpu="NVIDIA GeForce RTX 4090", driver="550.54.14"),
    "torch 2.10": Fault("torch 2.10.0+cu128"),
    "torch 2.4": Fault("torch 2.4.1+cu121"),
    "CPU build of torchvision": Fault("torchvision +cpu"),
    "torchvision 0.19": Fault("torchvision 0.19.0"),
    "torchaudio 2.4": Fault("torchaudio 2.4.0"),
    "triton 3.2": Fault("triton 3.2.0"),
    "xformers 0.0.28": Fault("xformers 0.0.28.post3"),
    "NCCL 2.19": Fault("nvidia-nccl-cu12 2.19.3"),
    "flash-attn for torch 2.6": Fault("flash-attn 2.8.3+cu12torch2.6cxx11abitrue"),
    "vLLM 0.11": Fault("vllm 0.11.0"),
    "TRL 0.15": Fault("trl 0.15.2"),
    "TRL 1.16": Fault("trl 1.16.0"),
    "transformers 5.23": Fault("transformers 5.23.0"),
    "transformers 4.40": Fault("transformers 4.40.1"),
    "accelerate 0.20": Fault("accelerate 0.20.3"),
    "PEFT 0.10": Fault("peft 0.10.0"),
    "bitsandbytes 0.43": Fault("bitsandbytes 0.43.1"),
    "huggingface-hub 1.5": Fault("huggingface-hub 1.5.0"),
    "huggingface-hub 0.20": Fault("huggingface-hub 0.20.3"),
    "kernels 0.15": Fault("kernels 0.15.0"),
    "numpy 1.21": Fault("numpy 1.21.6"),
    "numpy 2.4": Fault("numpy 2.4.0"),
}


def versions(text: str) -> dict[str, str]:
    """`torch 2.8.0, vllm 0.10.2` as versions by name."""
    return dict(part.split() for part in text.split(",") if part.strip())


def faulty_stacks() -> Iterator[tuple[str, Machine, Stack]]:
    """Each fault in each stack that it changes."""
    for name, text in STACKS.items():
        healthy = versions(text)
        for label, fault in FAULTS.items():
            packages = dict(healthy)
            for package, version in versions(fault.packages).items():
                is_build = version.startswith("+")
                packages[package] = packages[package].partition("+")[0] + version if is_build else version
            if packages != healthy or not fault.packages:
                machine = make_machine([fault.gpu], driver=fault.driver)
                stack = torch_stack(packages["torch"], available=None, packages=packages)
                yield f"{name}, {label}", machine, stack
