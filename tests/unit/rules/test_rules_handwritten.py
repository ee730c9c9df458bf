"""Findings of handwritten lists, and of the warnings around a report."""

from __future__ import annotations

from support.cases import each_case
from support.collect_env_reports import torch_report

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.knowledge.pythons import python_ranges, supported_pythons
from envdoctor.reports import parse_report


def problem_causes(text: str) -> dict[str, str]:
    """Errors and warnings: cause by rule."""
    return {f.id: f.cause for f in diagnose_report(parse_report(text)) if f.status in ("error", "warning", "crashed")}


@each_case(
    ("text", "rule", "cause"),
    [
        ("GPU: RTX 5070 Ti\nPyTorch: 2.4.1\nOS: Windows 11\n", "TORCH001", "gpu-arch-not-in-build"),
        ("GPU: RTX 5090\nPyTorch: 2.7.0.dev20250310+cu124\n", "TORCH001", "gpu-arch-not-in-build"),
        ("GPU: RTX 3090\nPyTorch: 1.7.1+cu101\n", "TORCH001", "gpu-arch-not-in-build"),  # older than the table
        ("GPU: RTX 3060\nPyTorch: 1.0.0.dev20190401+cu90\n", "TORCH001", "gpu-arch-not-in-build"),
        ("GPU: Tesla P40\nPyTorch build: cu128\n", "TORCH002", "gpu-arch-dropped"),
        ("GPU: GTX 1080\nPyTorch: nightly, cu111\narch list: sm_50 sm_70 sm_80\n", "TORCH002", "gpu-arch-dropped"),
        ("OS: Debian 13\nPython: 3.13\nvllm: 0.9.2\n", "PY003", "python-unsupported"),
        ("OS: Ubuntu 24.04\nPython: 3.13.1\nInstall: pip install vllm==0.10.0\n", "PY003", "python-unsupported"),
        ("GPUs: 4x RTX 3090\nhost: WSL2\nPython: 3.10\n", "DRV011", "wsl-multi-gpu-limit"),
        (
            "OS: RHEL 8.10 (glibc 2.28)\nwheel: vllm-0.20.0-cp38-abi3-manylinux_2_35_x86_64.whl\n",
            "PY006",
            "glibc-too-old",
        ),
        ("nvcc: 11.8\ntorch: 2.6.0+cu124\nflash-attn: 2.7.4.post1\n", "CUDA001", "nvcc-torch-mismatch"),
        ("GPU: A100 (MIG 3g.40gb)\nCUDA_VISIBLE_DEVICES: MIG-0a\nvLLM: 0.9.2\n", "ENV006", "cuda-device-selection"),
        (
            "python: 3.11\nCUDA_VISIBLE_DEVICES: 1\ntorch.cuda.is_available(): False\n",
            "ENV017",
            "cuda-device-selection",
        ),
        ("trl: 0.11.4\ntransformers: 4.46.0\ntorch: 2.4.1\n", "HF016", "transformers-too-new"),
        ("GPU: RTX 4070\ntorch: 2.5.1\ntorch.version.cuda: None\n", "TORCH003", "torch-cpu-build"),
        ("Driver: 470.256.02\ntorch: 2.6.0+cu124\n", "TORCH004", "driver-too-old"),
        ("Driver: 440.33.01\npaddlepaddle-gpu: 2.4.2.post112\n", "DRV017", "driver-too-old"),
        ("nvcc: 12.1\nTensorFlow: 2.8.0\nGPU: RTX 3060\n", "PY011", "cudart-missing"),
    ],
)
def test_problem_of_a_handwritten_list(text: str, rule: str, cause: str) -> None:
    assert problem_causes(text)[rule] == cause


@each_case(
    "text",
    [
        "GPU: RTX 5090\nPyTorch: 2.7.1\nCUDA: 12.8\nvLLM: 0.10.1.1\nPython: 3.12\nOS: Ubuntu 24.04 (WSL2)\n",
        "GPU: RTX 5080\nPyTorch: 2.8.0.dev20250501+cu128\n",
        "GPU: RTX 3090\nPyTorch: 1.7.1+cu110\n",
        "GPU: GTX 1080\nPyTorch: 1.4.0+cu92\n",
        "GPU: Tesla V100\nPyTorch: 1.4.0+cu101\n",
        "GPU: Tesla P40\nPyTorch: 2.8.0\n",  # its CUDA 12.6 build has the code
        "GPU: 2x A100-SXM4-80GB\nPyTorch: 2.7.1\nCUDA: 12.6\nDriver: 560.35.05\nPython: 3.10.12\n",
        "Device: Jetson AGX Orin 64GB\ntorch: 2.5.0\nOS: Ubuntu 22.04\n",
        "GPUs: 3x RTX 3090\nhost: WSL2\nPython: 3.10\n",
        "Python: 3.13\nvllm: 0.11.0\nOS: Ubuntu 24.04\n",
        "Python: 3.8\nOS: Ubuntu 20.04\ncommand: vllm serve x\n",  # an older vLLM supported it
        "OS: Ubuntu 24.04 (glibc 2.39)\nwheel: vllm-0.20.0-cp38-abi3-manylinux_2_35_x86_64.whl\n",
        "python: 3.11\nCUDA_VISIBLE_DEVICES: 0\nGPU: RTX 3090\n",
        "trl: 0.12.0\ntransformers: 4.46.0\ntorch: 2.4.1\n",
        "GPU: NVIDIA RTX A6000\nPyTorch: 2.6.0+cu124\nCUDA_VISIBLE_DEVICES: 1\n",  # one of several
    ],
)
def test_healthy_handwritten_list_has_no_problems(text: str) -> None:
    assert problem_causes(text) == {}


@each_case(
    ("torch", "removed"),
    [("2.9.1", ""), ("2.9.1+cu128", "nvidia-nccl-cu13"), ("2.9.1+cu130", "nvidia-nccl-cu12")],
)
def test_nccl_of_another_cuda_is_removed_only_where_the_cuda_of_torch_is_known(torch: str, removed: str) -> None:
    nccl = "nvidia-nccl-cu12: 2.27.4\nnvidia-nccl-cu13: 2.28.9\n"
    findings = diagnose_report(parse_report(f"torch: {torch}\nPython: 3.12\n{nccl}"))
    commands = [str(f.remedies) for f in findings if f.id == "NCCL001"]
    assert len(commands) == 1
    assert ("uninstall" in commands[0]) is bool(removed)
    assert f"uninstall {removed}" in commands[0] or not removed


@each_case(
    "line",
    [
        "You are using a deprecated `pynvml` package. Please install `nvidia-ml-py` instead",
        "/v/torch/cuda/__init__.py:51: FutureWarning: The pynvml package is deprecated. Please install nvidia-ml-py.",
        "Warning: Your installation of OpenCV appears to be broken: module 'cv2.dnn' has no attribute 'DictValue'.",
        "INFO 10-23 08:11:02 [__init__.py:22] NIXL is not available",
        "WARNING 10-23 08:11:02 [interface.py:171] Failed to import from vllm._rocm_C",
    ],
)
def test_import_warnings_are_not_problems(line: str) -> None:
    assert problem_causes(torch_report({}, {}, before=line + "\n")) == {}


@each_case(
    ("line", "cause"),
    [
        (
            (
                "WARNING [_custom_ops.py:19] Failed to import from vllm._C with ImportError('/v/_C.abi3.so: "
                "undefined symbol: cuTensorMapEncodeTiled')"
            ),
            "driver-too-old",
        ),
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
            "driver-too-old",
        ),
        (
            (
                "node1:9:9 [0] NCCL WARN NCCL cannot be captured in a graph if either it wasn't built with CUDA "
                "runtime >= 11.3 or if the installed CUDA driver < R465."
            ),
            "nccl-lib-mismatch",
        ),
    ],
)
def test_warnings_about_failures_are_problems(line: str, cause: str) -> None:
    assert problem_causes("torch: 2.4.0\nPython: 3.10\n" + line + "\n")[f"TEXT-{cause}"] == cause


def test_missing_kernel_image_is_an_extensions_problem_if_torch_has_code() -> None:
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    named = problem_causes("GPU: RTX 5090\nPyTorch: 2.7.1+cu128\nlmdeploy: 0.9.2\n" + error)
    assert "ext-arch-not-in-build" in named.values()
    assert "gpu-arch-not-in-build" not in named.values()


def test_supported_pythons_by_release() -> None:
    assert all(row.source and row.date for row in python_ranges())
    assert supported_pythons("vllm", "0.10.1.1") == ">=3.9,<3.13"
    assert supported_pythons("vllm", "0.10.2rc1.dev3") == ""  # between two ranges
    assert supported_pythons("vllm", "0.6.6.post1") == ">=3.9"
    assert supported_pythons("numba", "0.61.2") == ">=3.10,<3.14"
    assert supported_pythons("left-pad", "1.0") == ""


def test_a_torch_of_unknown_version_is_named_without_a_gap() -> None:
    report = parse_report("torch.version.cuda: 11.8\nGPU: NVIDIA GeForce RTX 5070\n")
    (found,) = [each for each in diagnose_report(report) if each.id == "TORCH001"]
    assert found.message.startswith("torch (CUDA 11.8) has no code for GPU 0")
