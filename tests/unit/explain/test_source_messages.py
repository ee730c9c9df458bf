"""Messages that are in the sources of libraries, in the form in which Python and loggers print them."""

from __future__ import annotations

import pytest
from support.explained import explain_text

from envdoctor.explain.rank import Cause

LIKELY = 0.4


def likely_causes(text: str) -> list[Cause]:
    """The causes in the environment that the result presents as likely."""
    return [cause for cause in explain_text(text).causes if cause.confidence >= LIKELY]


@pytest.mark.parametrize(
    "expression",
    ["!device.is_cuda()", "variable.requires_grad()", "cuda_dict", "at::hasCUDA()", "b >= 0 && b < 2"],
)
def test_a_failed_assertion_of_torch_is_not_similar_to_another_one(expression: str) -> None:
    text = f'{expression} INTERNAL ASSERT FAILED at "/pytorch/torch/csrc/x.cpp":72, please report a bug to PyTorch.'
    assert not likely_causes(text)
    assert not likely_causes(f"RuntimeError: {text}")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ImportError: To support decoding audio data, please install 'torchcodec'.", "uv pip install torchcodec"),
        ("ModuleNotFoundError: `Pillow` is not installed", "uv pip install pillow"),
        ("ImportError: s3:// paths require s3fs to be installed", "uv pip install s3fs"),
        (
            "ValueError: datasets is not available. Please install it via `pip install datasets`.",
            "uv pip install datasets",
        ),
        (
            "ImportError: Please install the `math_verify` package to use accuracy_reward",
            "uv pip install math-verify",
        ),
        (
            "ImportError: \nExampleProcessor requires the timm library but it was not found in your environment.",
            "uv pip install timm",
        ),
        ("ERROR 11-20 10:11:12 [logger.py:8] SwanLab is not installed", "uv pip install swanlab"),
    ],
)
def test_a_message_that_names_a_missing_package(text: str, command: str) -> None:
    (cause,) = likely_causes(text)
    assert cause.cause == "wrong-python-env"
    assert command in [each for remedy in cause.remedies for each in remedy.commands]


def test_a_package_that_is_built_for_the_machine_gets_no_plain_installation() -> None:
    (cause,) = likely_causes("AssertionError: DeepSpeed is not installed => run `pip3 install deepspeed` or build it")
    assert cause.cause == "wrong-python-env"
    assert not any("uv pip install" in each for remedy in cause.remedies for each in remedy.commands)


def test_an_unknown_package_gets_no_command_that_installs_it() -> None:
    (cause,) = likely_causes("ImportError: Please `pip install unheard-of-package` to use this function")
    assert cause.cause == "wrong-python-env"
    assert not any("unheard" in each for remedy in cause.remedies for each in remedy.commands)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Building a device_mesh requires to have torch>=2.2.0",
        "AssertionError: Requires fvcore>=0.1.2",
        "ImportError: comet_ml version 3.1.0 is installed, but version 3.43.2 or higher is required.",
        "ValueError: Tensor parallelism is only available in PyTorch 2.3.0 and later versions.",
        "AssertionError: mmengine >= 0.7.4 is required but 0.5.0 is installed",
        "ValueError: make sure you have the latest version of `bitsandbytes` installed.",
        "RuntimeError: this needs a newer unsloth_zoo. Please run `pip install --upgrade unsloth_zoo`.",
    ],
)
def test_a_message_that_requires_a_newer_release(text: str) -> None:
    assert [cause.cause for cause in likely_causes(text)] == ["library-too-old"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RuntimeError: dim_blocks() is supported on CUDA 11.6+", "nvcc-too-old"),
        ("AssertionError: comprehension graph break requires Python 3.12+, got 3.10", "python-unsupported"),
    ],
)
def test_a_message_that_requires_a_newer_product(text: str, expected: str) -> None:
    assert [cause.cause for cause in likely_causes(text)] == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: `datasets` is required to be a list",
        "ValueError: num_generations must be divisible by the number of processes",
        'ImportError: API "data_type_dict" is required but missing for backend "value".',
        "CLIError: Cannot determine how to update huggingface_hub. Please update manually.",
        "ValueError: Ling requires trust_remote_code. Without it, transformers>=5.20 loads its native classes.",
        "ValueError: CPU offload is not possible. If you want it, please install bitsandbytes with multi-backend.",
        "ValueError: block_size >= 16 is required",
        "RuntimeError: Git is required to install the pinned source",
        "AssertionError: sm100+ does not support bias with dropout, and deterministic bprop (cuDNN 9.18.1+) neither",
        "RuntimeError: a model without `accelerate`",
        "RuntimeError: mat1 and mat2 must have the same dtype\ntorch 2.5.1+cu124 transformers 4.47.0 peft 0.14.0",
        "INFO: torchao is not installed, using the default",
        "UserWarning: Triton is not installed, reset use_triton to False",
        "To decode audio, install torchcodec with `pip install torchcodec`.",
    ],
)
def test_other_messages_with_the_same_words(text: str) -> None:
    assert not likely_causes(text)


def test_an_import_that_a_library_refuses_is_no_violated_requirement() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/venv/lib/python3.12/site-packages/server/flash.py", line 9, '
        'in <module>\n    raise ImportError("...")\nImportError: {}\n'
    )
    assert not likely_causes(text.format("AMD GPU gfx906 does not support flash-attention"))
    passed_on = text.format("Failed to import server.flash because of the following error: bad magic number")
    assert [cause.cause for cause in likely_causes(passed_on)] == ["dependency-pin-violated"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ImportError: fused_dense is not installed", "wrong-python-env"),
        ("RuntimeError: Please install the `etils[epath]` package to specify a cache directory", "wrong-python-env"),
        (
            "ImportError: Cannot import 'panopticapi', therefore 'PanopticEvaluator' is not available.",
            "wrong-python-env",
        ),
        ("RuntimeError: Triton is needed for the forward pass but it is not available!", "wrong-python-env"),
        ("ValueError: torchao was selected, but it is not installed on this machine.", "wrong-python-env"),
        ("ImportError: `maybe_autocast` requires PyTorch to be installed.", "wrong-python-env"),
        ("AssertionError: Requires pyyaml>=5.1", "library-too-old"),
        ("ImportError: requires a fastai>=2.4.0 version, but you are using fastai 2.1.0", "library-too-old"),
        ("AssertionError: Triton is required for the efficient entropy kernel", "wrong-python-env"),
        ("ERROR: Model 'org/m' is gated (gated=manual) and no HF token provided", "hub-auth"),
        ("AssertionError: With dlink=True, ninja is required to build cuda extension x.", "compiler-missing"),
        ("RuntimeError: Triton is not available for GGUF Q6_K fused matmul.", "wrong-python-env"),
        ("RuntimeError: FP4CastSTEFunction requires triton.", "wrong-python-env"),
        ("ImportError: 'CPUHashMap' requires 'pyg-lib'", "wrong-python-env"),
        ("Exception: Unable to find a port to bind to.", "port-in-use"),
        ("NotImplementedError: determinism not supported yet for Sm80", "gpu-unsupported-by-library"),
        ("RuntimeError: Ampere GPU is required to run this example!", "gpu-unsupported-by-library"),
        ("AssertionError: supported only on CUDA compute capability >= 70", "gpu-unsupported-by-library"),
        (
            "RuntimeError: Failed to find C++ compiler. Please specify via CXX environment variable",
            "compiler-missing",
        ),
        ("Exception: Unable to run `nvcc --version`", "cuda-home-missing"),
        ("host:123:140 [0] NCCL WARN Insufficient driver: 11080 < 12020", "driver-too-old"),
    ],
)
def test_a_message_of_the_sources(text: str, expected: str) -> None:
    assert likely_causes(text)[0].cause == expected


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: gated NVFP4 MoE weights must have even row counts",
        "ValueError: latent mode=none requires num_slots=0 and no token_ids",
        "NotImplementedError: Saving the state dict to disk in format pth is not supported. Choose from ['pt'].",
        "TypeError: The input type Image is not available with VLLM offline. The only available types are `str`.",
        "ValueError: The use of ffi_call requires a custom call API version of at least 4; got api_version=1.",
        "a.py:8: UserWarning: 'auto' is experimental and may cause uncaught Cuda Out of Memory errors.",
        "AssertionError: the block size is not supported for head_dim 256",
        "KeyError: 'port'",
        "ValueError: sampler requires generator.",
        "ValueError: packed sequences with the option unset. Set X=0 (requires ``flash-attn`` installed).",
        "ValueError: datasets is not available to the worker",
    ],
)
def test_a_refused_argument_is_no_cause_in_the_environment(text: str) -> None:
    assert not likely_causes(text)
