"""Findings from the sentences and messages with which people describe a failure, next to the facts of a report."""

from __future__ import annotations

from support.cases import each_case
from support.collect_env_reports import torch_report
from support.report_samples import blamed_causes

GPUS = "GPU models and configuration"
JETSON = "Jetson Orin NX, JetPack 6.1 (L4T R36.4), aarch64, Python 3.10\ntorch 2.5.0a0+872d972e41.nv24.08\n"
PIP_32_BIT = "ERROR: No matching distribution found for torch\n"


def gpu_report(sentence: str, *names: str) -> str:
    """A sentence in front of PyTorch's report of a machine with these GPUs, for CUDA 12.4."""
    gpus = "\n".join(f"GPU {index}: {name}" for index, name in enumerate(names))
    lines = {GPUS: gpus, "PyTorch version": "2.5.1+cu124", "CUDA used to build PyTorch": "12.4"}
    return torch_report(lines, {"torch": "2.5.1+cu124"}, before=f"{sentence}\n\n")


@each_case(
    ("sentence", "gpu", "cause"),
    [
        ("vLLM won't start on this server with two P40s", "Tesla P40", "gpu-unsupported-by-library"),
        ("vllm crashes at once", "NVIDIA GeForce GTX 1080 Ti", "gpu-unsupported-by-library"),
        ("Unable to run vllm on our Pascal cards", "Tesla P40", "gpu-unsupported-by-library"),
        ("[Bug] sglang does not launch on a V100", "Tesla V100-SXM2-32GB", "gpu-unsupported-by-library"),
        ("flash attention 2 doesn't work on a T4", "Tesla T4", "gpu-unsupported-by-library"),
        ("Training on this server is slow", "Tesla P40", ""),
        ("Does vllm support the P40?", "Tesla P40", ""),
        ("vllm crashes at once", "NVIDIA L4", ""),
        ("sglang does not start", "Tesla T4", ""),
    ],
)
def test_a_library_that_a_sentence_reports_as_failing(sentence: str, gpu: str, cause: str) -> None:
    found = blamed_causes(gpu_report(sentence, gpu, gpu))
    assert ("gpu-unsupported-by-library" in found) == bool(cause), found


@each_case(
    ("text", "cause", "expected"),
    [
        (f"Win 11? No, Windows 10, 32-bit, Python 3.12\n{PIP_32_BIT}", "platform-no-wheel", True),
        (f"Python 3.12.4 (v3.12.4, 32 bit)\n{PIP_32_BIT}", "platform-no-wheel", True),
        (f"Windows 10 64bit, Python 3.14\n{PIP_32_BIT}", "platform-no-wheel", False),
        (
            "torch 2.5.1, flash-attn 2.8.3\nImportError: .../flash_attn_2_cuda... : undefined symbol: _ZN3c10...",
            "torch-abi-mismatch",
            True,
        ),
        ("torch 2.5.1\nImportError: causal_conv1d_cuda ... undefined symbol", "torch-abi-mismatch", True),
        ("torch 2.5.1\nImportError: libcublas ... undefined symbol", "torch-abi-mismatch", False),
        ("RTX 3060, torch 2.7\nIt needs a CUDA capability of at least 8.9 for fp8", "dtype-unsupported-gpu", True),
        ("RTX 3080, torch 2.7, fp8\nThe log: CUDA capability is lower than 8.9", "dtype-unsupported-gpu", True),
        ("RTX 4090, torch 2.7\ncompute capability 8.9", "dtype-unsupported-gpu", False),
        (
            (
                "jax 0.4.30, one L4\nW asm.cc:98] *** WARNING *** Invoking ptxas with version 12.1.105. It "
                "can\nmiscompile XLA's code.\n$ which ptxas\n/usr/local/cuda-12.1/bin/ptxas"
            ),
            "ptxas-too-old",
            True,
        ),
        (
            f"{JETSON}pip install bitsandbytes\nError named symbol not found at line 55 in file /build/csrc/ops.cu",
            "ext-arch-not-in-build",
            True,
        ),
        (
            "RTX 4090, bitsandbytes 0.46.0\nError named symbol not found at line 55 in file /build/csrc/ops.cu",
            "ext-arch-not-in-build",
            False,
        ),
    ],
)
def test_a_message_in_a_handwritten_report(text: str, cause: str, expected: bool) -> None:
    assert (cause in blamed_causes(text)) == expected
