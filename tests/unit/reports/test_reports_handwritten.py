"""Hand-written environment lists in issues: recognized entries, and text that is ignored."""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import gpus, versions

from envdoctor.reports import parse_report
from envdoctor.reports.handwritten import _record_venv
from envdoctor.reports.section import Section
from envdoctor.rules import evaluate

FORM = """\
### Environment
- **GPU:** 2x RTX 5090 (32 GB each)
- **Driver**: 580.105.08 / CUDA 13.0
- OS: Windows 11, WSL 2 (2.3.26.0), kernel 5.15.153.1
- Python: 3.12.3
- PyTorch: 2.8.0 (CUDA 12.8)
- vLLM: v0.10.2 (from PyPI)
- `CUDA_VISIBLE_DEVICES`: 0,1
- torch.cuda.is_available(): True
- Model: Qwen3-32B
"""
TABLE = """\
| Component | Version |
|-----------|---------|
| **GPU** | NVIDIA GeForce RTX 3060 (12GB) |
| NVIDIA driver | 546.33 |
| CUDA toolkit | 12.3 |
| torch | 2.5 cu121 |
"""
CHINESE = """\
操作系统COLONUbuntu 20.04.6 LTS
显卡COLONRTX 4090 * 4
驱动版本COLON535.129.03
pytorch版本COLON2.1.2+cu121
""".replace("COLON", "\uff1a")


def test_bulleted_list() -> None:
    report = parse_report(FORM)
    machine, stack = report.machine, report.stack
    assert report.kinds == ("handwritten list",)
    assert [(gpu.name.value, gpu.compute_capability.value) for gpu in gpus(report)] == [("RTX 5090", "12.0")] * 2
    assert (machine.driver.version.value, machine.driver.cuda.value) == ("580.105.08", "13.0")
    assert (machine.system.os.value, machine.system.kernel.value) == ("Windows 11", "5.15.153.1")
    assert machine.system.wsl.state == "known"
    assert (stack.python_version.value, stack.cuda_available.value) == ("3.12.3", True)
    assert stack.torch.value
    assert (stack.torch.value.version.value, stack.torch.value.cuda.value) == ("2.8.0", "12.8")
    assert versions(report) == {"torch": "2.8.0", "vllm": "0.10.2"}
    assert machine.environment.value == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert report.errors == "### Environment\n- Model: Qwen3-32B"


def test_markdown_table() -> None:
    report = parse_report(TABLE)
    assert [gpu.name.value for gpu in gpus(report)] == ["NVIDIA GeForce RTX 3060"]
    assert report.machine.driver.version.value == "546.33"
    assert report.machine.cuda.nvcc_version.value == "12.3"
    assert report.stack.torch.value
    assert report.stack.torch.value.cuda.value == "12.1"


def test_chinese_keys_and_colons() -> None:
    report = parse_report(CHINESE)
    assert report.machine.system.os.value == "Ubuntu 20.04.6 LTS"
    assert len(gpus(report)) == 4
    assert report.machine.driver.version.value == "535.129.03"
    assert versions(report) == {"torch": "2.1.2+cu121"}


@each_case(
    ("line", "names", "capability", "mig"),
    [
        ("GPU: 4x NVIDIA TITAN V (cuda capability 7.0)", ["NVIDIA TITAN V"] * 4, "7.0", None),
        ("GPU: H100 80 GB HBM3 SXM5, MIG enabled (2g.20gb)", ["H100 80 GB HBM3 SXM5"], "9.0", True),
        ("GPU: A100-SXM4-40GB, MIG disabled", ["A100-SXM4-40GB"], "8.0", False),
        ("GPUs: RTX 4090 and RTX 3090", ["RTX 4090", "RTX 3090"], "8.9", None),
        ("GPU: Pascal, sm_61", [None], "6.1", None),
        ("Hardware: 2 RTX A6000, AMD Ryzen 9 7950X, 128GB RAM", ["RTX A6000"] * 2, "8.6", None),
        ("GPU - RTX 3090 (x2)", ["RTX 3090"] * 2, "8.6", None),
        ("GPU: Intel Arc A770", [], None, None),
        ("GPU: AMD MI300X x8", [], None, None),
    ],
)
def test_gpu_descriptions(line: str, names: list[str], capability: str, mig: bool) -> None:
    report = parse_report(f"{line}\nPython: 3.11\nPyTorch: 2.6.0\n")
    gpu_list = report.machine.gpus.value or ()
    assert [gpu.name.value for gpu in gpu_list] == names
    if gpu_list:
        assert (gpu_list[0].compute_capability.value, gpu_list[0].mig.value) == (capability, mig)


@each_case(
    ("line", "version", "cuda"),
    [
        ("torch: 2.0.1\nCUDA: 11.8", "2.0.1", "11.8"),
        ("torch: 2.8.0\nCUDA: 11.8", "2.8.0", None),  # no such torch build exists
        ("torch: 2.4.0+cu121\nCUDA: 12.6", "2.4.0+cu121", "12.1"),
        ("PyTorch: nightly, cu111\nPython: 3.8", None, "11.1"),
        ("PyTorch: 2.7.0.dev20250310+cu124 (nightly wheel)\nPython: 3.8", "2.7.0.dev20250310+cu124", "12.4"),
        ("torch version: 2.8 cu128\nPython: 3.12", "2.8", "12.8"),
        ("PyTorch / CUDA: 2.7.0 / 12.8\nPython: 3.12", "2.7.0", "12.8"),
        ("torch compiled with: 11.7\nPython: 3.10", None, "11.7"),
        ("Environment: Ubuntu 22.04, Python 3.10, PyTorch 2.1.0+cu118\nCUDA toolkit: 11.8", "2.1.0+cu118", "11.8"),
    ],
)
def test_torch_version_and_cuda_version(line: str, version: str | None, cuda: str | None) -> None:
    build = parse_report(line).stack.torch.value
    assert build
    assert (build.version.value, build.cuda.value) == (version, cuda)


def test_architecture_list_of_another_build_is_ignored() -> None:
    text = "GPU: GTX 1070 (sm_61)\ntorch: 2.8 cu128\narch list (cu126): 5.0 6.0 7.0\narch list (cu128): 7.0 7.5 8.0\n"
    build = parse_report(text).stack.torch.value
    assert build
    assert build.architectures.value == ("sm_70", "sm_75", "sm_80")


def test_wheel_name_is_the_source_of_the_distribution() -> None:
    wheel = "vllm-0.30.0+cpu-cp38-abi3-manylinux_2_39_x86_64.whl"
    report = parse_report(f"OS: Ubuntu 22.04 LTS (glibc 2.35)\nwheel: {wheel}\n")
    assert report.machine.system.glibc.value == "2.35"
    distribution = (report.stack.distributions.value or {})["vllm"]
    assert (distribution.version, distribution.source) == ("0.30.0+cpu", wheel)


@each_case(
    "text",
    [
        "I have a GPU: it is slow.\nThe problem: CUDA is out of memory.\nSteps: run it\n",
        "Requirements:\n- CUDA: >=12.1\n- PyTorch: >=2.4\n- GPU: compute capability 7.0 or higher\n",
        "INFO Device: cuda:0\nGPU: 0\nEpoch: 1\nArgs: Namespace(x=1)\n",
        "GPU: NVIDIA H100\nloss: 0.1\n",  # a single entry is not a list
        "torch: latest\nvllm: main\nDriver: newest\n",
    ],
)
def test_prose_logs_and_requirements_are_not_a_list(text: str) -> None:
    assert "handwritten list" not in parse_report(text).kinds


def test_secrets_in_a_list_are_redacted() -> None:
    report = parse_report("GPU: H100\nHF_TOKEN: hf_plantedplantedplanted\nPython: 3.12\n")
    assert report.machine.environment.value == {"HF_TOKEN": "(set)"}


@each_case(
    ("value", "kind"),
    [("/home/me/venv", "venv"), ("~/venv", "venv"), ("C:\\venv", "venv"), ("my/venv", None), ("yes", None)],
)
def test_the_path_of_a_venv(value: str, kind: str | None) -> None:
    section = Section("report")
    assert _record_venv(section, value) is (kind is not None)
    assert "stack.kind" in section.facts or kind is None


@each_case(
    ("cuda", "gpu", "rest", "torch_cuda"),
    [
        ("CUDA version 11.8", "NVIDIA GeForce RTX 5070 Ti", "", "11.8"),
        ("CUDA version: 12.1", "NVIDIA GeForce RTX 5090", "", "12.1"),
        ("CUDA version: 13.0", "NVIDIA GeForce GTX 1080", "", None),  # can be that of the driver
        ("CUDA version: 11.8", "NVIDIA GeForce RTX 5090", "nvcc: 11.8", None),  # can be that of the toolkit
        ("CUDA version: 11.8", "NVIDIA GeForce RTX 5090", "torch: 2.7.1+cu128", "12.8"),
    ],
)
def test_cuda_older_than_the_gpu_next_to_torch_functions_is_that_of_torch(
    cuda: str, gpu: str, rest: str, torch_cuda: str | None
) -> None:
    report = parse_report(f"Python: 3.11.9\nDevice name: {gpu}\nCUDA is available: True\n{cuda}\n{rest}\n")
    build = report.stack.torch.value
    assert (build.cuda.value if build else None) == torch_cuda


def test_cuda_build_alone_decides_for_a_newer_gpu() -> None:
    report = parse_report("Device name: NVIDIA GeForce RTX 5080\nCUDA is available: True\nCUDA version 11.8\n")
    errors = [row.id for row in evaluate(report.machine, report.stack) if row.status == "error"]
    assert errors == ["TORCH001"]


@each_case(
    ("text", "gpus"),
    [
        ("Hardware: p4de for the benchmark, p5en for training", []),
        ("Hardware: t4g.large", []),
        ("Hardware: Tesla P4", ["Tesla P4"]),
        ("Hardware: 2x T4, 16 GB", ["T4", "T4"]),
        ("GPU: L4", ["L4"]),
    ],
)
def test_an_instance_type_is_no_gpu(text: str, gpus: list[str]) -> None:
    report = parse_report(f"- torch: 2.11.0\n- vLLM: 0.22.1\n- {text}\n")
    assert [each.name.value for each in report.machine.gpus.value or ()] == gpus


@each_case(
    ("line", "is_absent"),
    [
        ("PyTorch is not installed.", True),
        ("torch: Not installed", True),
        ("\u274c torch: \u672a\u5b89\u88c5", True),
        ("| torch | not installed |", True),
        ("PyTorch: No module named 'torch'", True),
        ("WARNING: Package(s) not found: torch", True),
        ("If PyTorch is not installed, run the script", False),
        ("PyTorch CUDA: not found", False),
        ("PyTorch: not installed\ntensorflow: 2.15.0", False),  # a program of TensorFlow needs none
    ],
)
def test_a_report_without_an_installed_torch(line: str, is_absent: bool) -> None:
    report = parse_report(f"OS: Ubuntu 22.04\nPython version: 3.10.12\n{line}\n")
    found = [each.id for each in evaluate(report.machine, report.stack) if each.status == "error"]
    assert found == (["PY001"] if is_absent else [])


@each_case(("python", "is_warned"), [("3.10.12", False), ("3.15.0", False), ("3.17.0", True)])
def test_a_python_that_no_torch_has_wheels_for(python: str, is_warned: bool) -> None:
    report = parse_report(f"OS: Ubuntu 22.04\nPython version: {python}\nPyTorch is not installed.\n")
    found = {each.id: each.status for each in evaluate(report.machine, report.stack)}
    assert (found.get("PY003") == "warning") is is_warned
