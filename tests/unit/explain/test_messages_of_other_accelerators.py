"""Messages of NPUs, of C++ libraries and packages of other releases, and of requirements with a variable.

Sources: github.com/RLinf/RLinf/pull/1577, Ascend/pytorch/issues/57 and 99, librosa/librosa/issues/1786,
cgpotts/cs224u/pull/139, ROCm/TheRock/issues/1119 (2026-11-28).
"""

from __future__ import annotations

from support.cases import each_case
from support.explained import explain_text

BOOST = "_ZN5boost6python6detail12gcc_demangleEPKc"
NOT_OPENED = "cannot open shared object file: No such file or directory"
NO_VERSION = "ERROR: Could not find a version that satisfies the requirement {} (from versions: 2.1.2, 2.2.0)"


def first_of(text: str) -> str:
    explained = explain_text(text)
    return next((each.cause for each in (*explained.causes, *explained.program_errors)), "")


@each_case(
    ("text", "cause"),
    [
        ("RuntimeError: Unsupported soc version: Ascend950PR_9579", "gpu-unsupported-by-library"),
        ("RuntimeError: Unsupported SOC version: Ascend310B4", "gpu-unsupported-by-library"),
        ("The code runs on an Ascend910B and on an A100.", ""),
        ("OSError: libtbe_adapter.so: undefined symbol: _ZN3Mki2DlC1ERKNSt7__cxx11", "dependency-pin-violated"),
        (f"ImportError: libfoo.so.2: undefined symbol: {BOOST}", "dependency-pin-violated"),
        ("ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "torch-abi-mismatch"),
        ("SystemError: initialization of _internal failed without raising an exception", "dependency-pin-violated"),
        ("ImportError: Numba needs NumPy 1.24 or less", "dependency-pin-violated"),
        ("ImportError: Numba needs NumPy 2.0 or less. Got NumPy 2.1.", "dependency-pin-violated"),
        ("NameError: name 'PeftModel' is not defined", "wrong-python-env"),
        ("NameError: name 'init_empty_weights' is not defined", "wrong-python-env"),
        ("NameError: name 'my_model' is not defined", ""),
        ("NameError: name 'AutoModel' is not defined", ""),
        ("numba 0.60 accelerates the loop with NumPy 2.0.", ""),
        (f"OSError: libamdhip64.so.6: {NOT_OPENED}", "system-library-missing"),
        (f"ImportError: libhsa-runtime64.so.1: {NOT_OPENED}", "system-library-missing"),
        (f"ImportError: libascend_hal.so: {NOT_OPENED}", "system-library-missing"),
        ("Please run 'source set_env.sh' in the CANN installation path.", "system-library-missing"),
        (f"ImportError: libcudart.so.12: {NOT_OPENED}", "cudart-missing"),
        ("The wheel contains libamdhip64.so.6 and libhccl.so.", ""),
    ],
)  # fmt: skip
def test_the_cause_of_a_message(text: str, cause: str) -> None:
    assert first_of(text) == cause


@each_case(
    ("text", "cause"),
    [
        (NO_VERSION.format("torch==2.1.2+${DEVICE}"), "requirement-not-valid"),
        ("ERROR: Invalid requirement: 'torch==${TORCH_VERSION}': Expected semicolon", "requirement-not-valid"),
        ("error: Failed to parse: `torch==$VERSION`", "requirement-not-valid"),
        ("ERROR: Invalid requirement: 'numpy=={{ numpy_version }}'", "requirement-not-valid"),
        (NO_VERSION.format("torch==2.1.2+cu121"), "release-not-on-index"),
        (NO_VERSION.format("torch==1.9.0"), "python-unsupported"),
    ],
)
def test_a_variable_that_nothing_replaced(text: str, cause: str) -> None:
    assert first_of(text) == cause


def test_a_variable_leaves_no_cause_in_the_environment() -> None:
    assert not explain_text(NO_VERSION.format("torch==2.1.2+${DEVICE}")).causes
