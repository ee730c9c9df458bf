"""Lines of public issues that resemble a known message: what a command, a log or source code contains is no error."""

from __future__ import annotations

import json

import pytest
from support.explained import explain_text
from support.paths import DATA

from envdoctor.explain.calibration import UNDECIDED

LINES = json.loads((DATA / "issue_lines.json").read_text())
ENGINE_FAILED = (
    "ERROR 04-12 01:03:21 [core.py:386] ValueError: too many values to unpack (expected 12)\n"
    "CRITICAL 04-12 01:03:21 [core_client.py:359] Got fatal signal from worker processes, shutting down. "
    "See stack trace above for root cause issue.\n"
)


def causes_of(text: str) -> dict[str, float]:
    explanation = explain_text(text)
    return {each.cause: each.confidence for each in (*explanation.causes, *explanation.program_errors)}


@pytest.mark.parametrize(
    "line",
    ["Killed", "serve.sh: line 46:  7164 Killed   vllm serve MODEL", "[1]    20958 killed     vllm serve"],
)
def test_an_engine_that_ends_itself_lacks_no_memory(line: str) -> None:
    assert "host-oom-runtime" in causes_of(line)
    assert not causes_of(ENGINE_FAILED + line)
    assert not causes_of("CUDA used to build PyTorch: 12.4\ncmake --build .\n" + ENGINE_FAILED + line)


@pytest.mark.parametrize("row", LINES["not an error of this cause"], ids=lambda row: row["text"][:40])
def test_a_line_that_is_no_error_of_this_cause(row: dict[str, str]) -> None:
    assert causes_of(row["text"]).get(row["cause"], 0.0) < UNDECIDED


@pytest.mark.parametrize("row", LINES["first cause"], ids=lambda row: row["text"][:40])
def test_a_message_in_another_form_is_found(row: dict[str, str]) -> None:
    assert next(iter(causes_of(row["text"]))) == row["cause"]


ENVIRONMENT = "PyTorch version: {}\nCUDA used to build PyTorch: 12.1\nGPU models and configuration: GPU 0: {}\n"
NO_CODE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


@pytest.mark.parametrize(
    ("torch", "gpu", "cause"),
    [
        ("2.3.0+cu121", "Tesla T4", "ext-arch-not-in-build"),
        ("2.3.0+cu121", "NVIDIA GeForce RTX 5090", "gpu-arch-not-in-build"),
        ("2.3.0+cu121", "", "gpu-arch-not-in-build"),
    ],
)
def test_a_torch_of_the_text_with_code_for_its_gpu_refutes_that_it_lacks_it(torch: str, gpu: str, cause: str) -> None:
    report = ENVIRONMENT.format(torch, gpu) if gpu else ""
    assert next(iter(causes_of(report + NO_CODE))) == cause


def test_a_message_in_source_code_is_no_error() -> None:
    part, cause = "be divisible by the number of generations per prompt", "batch-not-divisible"
    assert causes_of(f'raise ValueError(\n    "The batch size must {part}"\n)').get(cause, 0.0) < UNDECIDED
    assert causes_of(f'x\n    f"must {part} ({{number}}). "').get(cause, 0.0) < UNDECIDED
    assert causes_of(f'It prints:\n"must {part}"')[cause] > UNDECIDED


def test_a_cause_with_a_line_is_before_one_of_a_finding_alone() -> None:
    report = "PyTorch version: 2.3.0+cu121\n[pip3] torch==2.3.0\n[pip3] torchaudio==2.1.0\n"
    error = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer\n"
    assert list(causes_of(f"{report}{error}")) == ["nccl-interface", "torch-companion-mismatch"]


def test_a_compiled_part_that_was_not_built_names_no_other_environment() -> None:
    error = "ImportError: cannot import name 'flash_attn_varlen_func' from '{}' (unknown location)"
    assert not causes_of("x\n" * 200 + error.format("vllm.vllm_flash_attn"))
    assert next(iter(causes_of(error.format("vllm")))) == "wrong-python-env"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("ModuleNotFoundError: No module named 'awq_inference_engine'", "ext-cpu-build"),
        (
            "ImportError: cannot import name 'awq_dequantize' from 'sgl_kernel' (/v/sgl_kernel/__init__.py)",
            "library-too-old",
        ),
        (
            "TypeError: varlen_fwd(): incompatible function arguments. The following are supported:",
            "dependency-pin-violated",
        ),
        ("AttributeError: module 'deep_gemm' has no attribute 'gemm_fp8_fp8_bf16_nt'", "dependency-pin-violated"),
        (
            "cuda = packaging.version.parse(torch.version.cuda)\nTypeError: expected string or bytes-like object",
            "torch-cpu-build",
        ),
        (
            "error : Instruction 'wgmma.fence' cannot be compiled for architecture 'sm_120'",
            "gpu-unsupported-by-library",
        ),
        ("Failed to register memory 0x7f2a00000000: Bad address [14]", "nccl-interface"),
        # What resembles them.
        ("AttributeError: partially initialized module 'deep_gemm' has no attribute 'fp8_gemm_nt'", ""),
        ("TypeError: loss(): incompatible function arguments. The following are supported:", ""),
        ("  name = json.loads(path)\nTypeError: expected string or bytes-like object", ""),
        ("error : Instruction 'wgmma.fence' cannot be compiled for architecture 'sm_90'", ""),
    ],
)
def test_an_error_of_a_compiled_module(line: str, cause: str) -> None:
    found = [each for each, confidence in causes_of(line).items() if confidence >= UNDECIDED]
    assert found[:1] == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("ImportError: A valid HQQ version (>=0.2.1) is not available. Follow the instructions", "wrong-python-env"),
        ("please make sure that you have installed `bitsandbytes>=0.37.0`", "library-too-old"),
        (
            "Your GPU does not support Marlin kernel: requires compute_capability >= 8.0, got: 7.5",
            "gpu-unsupported-by-library",
        ),
        ("/usr/include/c++/13/bits/stl_pair.h(460): error: argument list is missing", "gcc-too-new-for-nvcc"),
        ("Setting NCCL_P2P_DISABLE=1 did work around it, but is slow.", "nccl-p2p-blocked"),
        (
            "version.parse(a)\nexpected string or bytes-like object\nNo CUDA runtime is found, using CUDA_HOME='c'",
            "torch-cpu-build",
        ),
        (
            "TypeError: LlamaAttention.forward() missing 1 required positional argument: 'attention_mask'",
            "transformers-too-new",
        ),
        ('error: identifier "__syncwarp" is undefined', "nvcc-too-old"),
        # What resembles them.
        ("Make sure you have installed the requirements and Python 3.10", ""),
        ("TypeError: MyAttention.forward() missing 1 required positional argument: 'labels'", ""),
        ('error: identifier "my_counter" is undefined', ""),
        ("The model requires a tokenizer (pip install is not needed)", ""),
        ("Setting NCCL_P2P_DISABLE=1 did not work around it.", ""),
        ("No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\nrunning build_ext", ""),
    ],
)
def test_a_requirement_of_a_library(line: str, cause: str) -> None:
    assert next(iter(causes_of(line)), "") == cause
