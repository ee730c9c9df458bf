"""The system that a text is from, and the commands of its remedies there."""

from __future__ import annotations

import io
import shlex

import pytest
from support.cases import each_case
from support.explained import explain_text
from support.remedies import commands_of
from support.report_stack import make_machine, torch_stack

from envdoctor.core.remedies import either
from envdoctor.explain import Cause
from envdoctor.explain.scan import scan
from envdoctor.explain.systems import UNIX_ONLY, System, command_on, remedies_on, system_of
from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.symptoms import symptom_table

MISSING = "OSError: libcudart.so.12: cannot open shared object file: No such file or directory"
PAGE_FILE = (
    r'OSError: [WinError 1455] ... Error loading "C:\Users\mk\envs\y\lib\site-packages\torch\lib\cudnn64_8.dll"'
)
MPS = "RuntimeError: MPS backend out of memory (MPS allocated: 17.93 GB, max allowed: 18.13 GB)."
NUMPY = r"""  File "C:\ai\env\lib\site-packages\torch\__init__.py", line 1382, in <module>
AttributeError: _ARRAY_API not found
A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.2 as it may crash."""


def first(text: str) -> Cause:
    return explain_text(text).causes[0]


@each_case(
    ("text", "system"),
    [
        (PAGE_FILE, "windows"),
        (r"File D:\sd\venv\lib\site-packages\torch\__init__.py, line 120", "windows"),
        ("LoadLibrary failed with error 126", "windows"),
        ("Platform: Windows-10-10.0.19045-SP0", "windows"),
        ("I use WSL2 on Windows 11", "linux"),
        ("Ubuntu 22.04 (WSL), the drivers are installed on Windows", "linux"),
        (r'mounted C:\Users\mk at /mnt/c, File "/home/mk/train.py", line 3', "linux"),
        ("You're on Linux (`manylinux_2_39_aarch64`), but there are only wheels for `win_amd64`", "linux"),
        ("macOS 15.1, Apple M2, MPS backend out of memory", "mac"),
        ("/opt/homebrew/lib/python3.12/site-packages/torch/__init__.py", "mac"),
        (MISSING, "linux"),
    ],
)
def test_system_of_a_text(text: str, system: System) -> None:
    assert system_of(scan(io.BytesIO(text.encode()), symptom_table()).signals) == system


@each_case(
    ("system", "line", "expected"),
    [
        ("linux", "ldconfig -p | grep libcuda", "ldconfig -p | grep libcuda"),
        ("windows", "ldconfig -p | grep libcuda", ""),
        ("windows", "uv pip list | grep -iE '^torch'", "uv pip list"),
        ("windows", "which -a nvcc; nvcc --version", "where.exe nvcc"),
        ("windows", "conda install 'mkl<2024.1'", 'conda install "mkl<2024.1"'),
        ("windows", "python -c 'import torch; torch.cuda.init()'", 'python -c "import torch; torch.cuda.init()"'),
        ("windows", "NCCL_P2P_DISABLE=1 torchrun PROGRAM", ""),
        ("windows", "touch t.cu && nvcc -c t.cu", ""),
        ("windows", "the version of nvidia-fabricmanager equals the driver's", None),
        ("mac", "nvidia-smi -L", ""),
        ("mac", "sudo modprobe nvidia", ""),
        ("mac", "nvcc --version; python -c 'import torch'", "python -c 'import torch'"),
        ("mac", "ls -l /dev/nvidia0", ""),
    ],
)
def test_command_on_a_system(system: System, line: str, expected: str | None) -> None:
    assert command_on(system, line) == (line if expected is None else expected)


def test_remedies_of_windows_are_for_powershell() -> None:
    install = either("uv pip install 'numpy>=1.26,<2'", "MAX_JOBS=4 uv pip install 'flash-attn==2.8.3'")
    assert [remedy.commands for remedy in remedies_on("windows", install)] == [
        ('uv pip install "numpy>=1.26,<2"',),
        ('$env:MAX_JOBS = "4"; uv pip install flash-attn==2.8.3',),
    ]
    setting = either(
        ["export HF_HUB_OFFLINE=1", "uv pip list"], ["sudo apt-get install -y libaio-dev", "uv pip list"]
    )
    assert [remedy.commands for remedy in remedies_on("windows", setting)] == [
        ('$env:HF_HUB_OFFLINE = "1"', "uv pip list")
    ]
    assert remedies_on("linux", setting) == setting
    (unset,) = remedies_on("windows", either("unset BNB_CUDA_VERSION"))
    assert unset.commands == ("Remove-Item Env:BNB_CUDA_VERSION",)


@pytest.mark.parametrize("system", ["windows", "mac"])
def test_no_remedy_or_check_starts_a_program_that_the_system_lacks(system: System) -> None:
    rows = (*causes().values(), *symptom_table().symptoms)
    lines = {each for row in rows for one in row.remedies or () for each in ([one] if isinstance(one, str) else one)}
    lines |= {row.check for row in rows} | {question.command for row in rows for question in row.find_out}
    for line in filter(None, (command_on(system, line) for line in lines)):
        assert "/proc/" not in line
        assert system == "mac" or not (
            {line.split()[0]} & UNIX_ONLY or "'" in line.replace("'s", "").partition('"')[0]
        )
        assert system == "mac" or "| grep" not in line
        if line.startswith(("uv ", "conda ", "python ")):
            assert shlex.split(line)


def test_explanations_have_the_commands_of_their_system() -> None:
    assert commands_of(first(NUMPY))[-1] == 'uv pip install "numpy>=1.26,<2"'
    (compiler,) = commands_of(first("error: Microsoft Visual C++ 14.0 or greater is required."))
    assert compiler == "where.exe cl"  # in PowerShell `where` is another command
    assert "wmic" not in "".join(commands_of(first(PAGE_FILE)))  # Windows 11 no longer has it
    assert not any("nvidia-smi" in line for line in [*commands_of(first(MPS)), first(MPS).check])
    windows = first("LoadLibrary failed with error 126 onnxruntime_providers_cuda.dll onnxruntime")
    assert (windows.cause, windows.check.split()[0]) == ("cudart-missing", "where.exe")
    assert first(MISSING).check.startswith("ldconfig")


def test_a_text_that_is_judged_with_facts_of_this_machine_keeps_its_commands() -> None:
    machine = make_machine(["NVIDIA H100 80GB HBM3"], driver="570.133.20")
    found = explain_text(NUMPY, machine, torch_stack("2.8.0+cu128"))
    assert "uv pip install 'numpy>=1.26,<2'" in commands_of(found.causes[0])


ORT = "[ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: "


@each_case(
    ("text", "word", "foreign"),
    [
        (f"thread 'main' panicked at src/main.rs:6:8: {ORT}libcublasLt.so.12: cannot open", "ldd", "import torch"),
        (f"ai.onnxruntime.OrtException: {ORT}libcublas.so.11: cannot open shared object", "ldd", "uv pip"),
        (f"Microsoft.ML.OnnxRuntime.OnnxRuntimeException: {ORT}libcudnn.so.9: cannot open", "ldd", "preload_dlls"),
        (f"{ORT}libcublasLt.so.12: cannot open shared object file", "onnxruntime", "ldd"),
        ("error: can't find Rust compiler", "rustc", "gcc"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'cargo'", "rustc", "gcc"),
        ("LibMambaUnsatisfiableError: Encountered problems while solving:", "--dry-run", "uv pip"),
        (
            "E cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.",
            "cudnn",
            "torch;",
        ),
        (
            "[TRT] 1: Serialization assertion stdVersionRead == serializationVersion failed.",
            "trtexec",
            "cache directory",
        ),
    ],
)
def test_verification_is_of_the_failing_program(text: str, word: str, foreign: str) -> None:
    found = first(text)
    assert word in found.check
    assert foreign not in "\n".join([found.fix, *commands_of(found), found.check])


@each_case(
    "text",
    [
        "Windows is not supported; use WSL2.",
        "FSDP2 is not supported on Windows.",
        "macOS is not supported yet, a pull request is welcome.",
        "The crate is written in Rust; `cargo build` compiles it.",
        "ONNX Runtime has packages for Java, .NET and Node.js.",
    ],
)
def test_sentences_of_a_documentation_have_no_cause(text: str) -> None:
    assert all(cause.confidence < 0.4 for cause in explain_text(text).causes)


@each_case(
    "text",
    [
        "RuntimeError: torch.compile is not supported on Windows",
        "ERROR: Failed to start: macOS is not supported",
        "AssertionError: vLLM only supports Linux platform (including WSL).",
    ],
)
def test_an_error_that_refuses_a_system_has_its_cause(text: str) -> None:
    assert first(text).cause == "platform-no-wheel"
