"""Messages of ONNX Runtime, XLA, CTranslate2 and Paddle about CUDA, and sound ones that resemble them."""

from __future__ import annotations

from support.cases import each_case
from support.explained import explain_text

from envdoctor.explain.calibration import UNDECIDED

INDEX = "Looking in indexes: https://download.pytorch.org/whl/{}\n"
NONE = "ERROR: Could not find a version that satisfies the requirement torch==2.10.0 (from versions: none)"
PADDLE = "The installed PaddlePaddle package was compiled for "
FAILED = "Failed to create CUDAExecutionProvider. "


@each_case(
    ("text", "cause"),
    [
        (FAILED + "Require cuDNN 9.* and CUDA 12.*. Please install all dependencies", "cudart-missing"),
        (FAILED + "Please reference https://onnxruntime.ai/docs/x.html#requirements to ensure", "cudart-missing"),
        ("ptxas 11.8.89 does not support CC 9.0. Falling back to the GPU driver", "ptxas-too-old"),
        (PADDLE + "60 61 80 ,but your current GPU is 90", "gpu-arch-not-in-build"),
        (INDEX.format("cu131") + NONE, "release-not-on-index"),
        ("torch was not found in the package registry: " + INDEX.format("cu127"), "release-not-on-index"),
        (INDEX.format("cu128") + NONE, "python-unsupported"),
        ("Cannot load cudnn shared library. Cannot invoke method cudnnCreate.", "cudart-missing"),
    ],
)
def test_a_message_has_its_cause(text: str, cause: str) -> None:
    found = explain_text(text).causes
    assert [each.cause for each in found][:1] == [cause]


@each_case(
    "text",
    [
        "ValueError: Requested float16 compute type, but the target device or backend do not support efficient x",
        "You are using GPU version Paddle, but your CUDA device is not set properly. CPU device will be used",
    ],
)
def test_a_message_with_several_reasons_names_what_to_find_out(text: str) -> None:
    (cause,) = explain_text(text).causes
    assert cause.find_out
    assert cause.confidence <= UNDECIDED


@each_case(
    "text",
    [
        "Created CUDAExecutionProvider with cuDNN 9.10 and CUDA 12.6",
        INDEX.format("cu131"),
        PADDLE + "70 75 80 86 90",
        "ptxas 12.8 supports CC 12.0",
        "Using float16 compute type on cuda:0",
        "You are using GPU version Paddle 3.0 for CUDA 12.6, cuDNN 9.5",
    ],
)
def test_a_sound_message_has_no_cause(text: str) -> None:
    assert not explain_text(text).causes
