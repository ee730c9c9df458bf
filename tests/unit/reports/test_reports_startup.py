"""Facts in what programs print at their start, and findings on a GPU that the text does not name."""

from __future__ import annotations

from support.cases import each_case
from support.report_facts import value_at
from support.report_samples import blamed_causes

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

YOLO_CHECKS = """\
OS                  Windows-11-10.0.26100-SP0
Environment         Windows
Python              3.13.3
Install             pip
GPU                 NVIDIA GeForce RTX 4080 SUPER, 16376MiB
GPU count           1
CUDA                12.6

numpy               \u2705 2.1.1<=2.1.1,>=1.23.0
opencv-python       \u2705 4.11.0.86>=4.6.0
torch               \u2705 2.6.0+cu126>=1.8.0
torchvision         \u2705 0.21.0+cu126>=0.9.0
"""
SDNEXT = (
    "17:00:01 INFO     Platform: arch=AMD64 cpu=AMD64 Family 26 system=Windows\n"
    "                  release=Windows-10-10.0.22631-SP0 python=3.10.11 docker=False\n"
    "Device: device=NVIDIA GeForce RTX 5090 n=1 arch=sm_90 capability=(12, 0) cuda=12.6 cudnn=90501 driver=576.02\n"
)
KOHYA = (
    "10:13:08-336582 INFO     Torch 2.1.2+cu118\n"
    "10:13:08-505220 INFO     Torch detected GPU: NVIDIA GeForce RTX 3090 VRAM 24150\n"
    "                         Arch (8, 6) Cores 82\n"
)
YOLO = "YOLOv5  v6.2-109-g23701ea Python-3.8.13 torch-1.12.1+cpu CPU"
TWO_STARTS = (
    "Ultralytics YOLOv8.0.53 Python-3.9.1 torch-1.8.1+cu111 CUDA:0 (NVIDIA GeForce RTX 3070, 8192MiB)\n"
    "Ultralytics YOLOv8.0.54 Python-3.10.6 torch-2.0.0+cpu CPU\n"
)
DEPENDENCIES = """\
### GPU model

RTX 5060 TI

### Python dependencies

{
    "version": "5.10.0",
    "dependencies": {
        "accelerate"  : "1.6.0"       ,
        "python"      : "3.11.10"     ,
        "torch"       : "2.6.0+cu124" ,
        "transformers": "4.51.3"
    }
}
"""
NOT_ON_THE_INDEX = """\
Python 3.11.0 (main, Oct 24 2022, 18:26:48) [MSC v.1933 64 bit (AMD64)]
Command: python.exe -m pip install torch==1.12.1+cu113 torchvision==0.13.1+cu113
stderr: ERROR: Could not find a version that satisfies the requirement torch==1.12.1+cu113 (from versions: none)
ERROR: No matching distribution found for torch==1.12.1+cu113
"""


@each_case(
    ("text", "path", "value"),
    [
        (YOLO_CHECKS, "machine.system.os", "Windows 11"),
        (YOLO_CHECKS, "stack.python_version", "3.13.3"),
        (YOLO_CHECKS, "stack.torch.version", "2.6.0+cu126"),
        (YOLO_CHECKS, "stack.torch.cuda", "12.6"),
        (SDNEXT, "machine.system.os", "Windows"),
        (SDNEXT, "machine.driver.version", "576.02"),
        (SDNEXT, "stack.torch.cuda", "12.6"),
        (KOHYA, "stack.torch.version", "2.1.2+cu118"),
        (YOLO, "stack.torch.version", "1.12.1+cpu"),
        (YOLO, "stack.python_version", "3.8.13"),
        (TWO_STARTS, "stack.torch.version", "2.0.0+cpu"),
        (TWO_STARTS, "stack.python_version", "3.10.6"),
        (DEPENDENCIES, "stack.python_version", "3.11.10"),
        (NOT_ON_THE_INDEX, "stack.torch", "unreadable"),
        ("I installed torch 2.3.0+cu121 and all of the other requirements.", "stack.torch.version", "2.3.0+cu121"),
        ("Installed the latest NVIDIA drivers (version: 576.57)", "machine.driver.version", "576.57"),
        ("INFO Installing package: torch==2.1.2+cu118 --index-url https://example.com", "stack.torch", "unreadable"),
    ],
)
def test_fact_of_a_start(text: str, path: str, value: object) -> None:
    assert value_at(parse_report(text), path) == value


@each_case(
    ("text", "name", "capability"),
    [
        (SDNEXT, "NVIDIA GeForce RTX 5090", "12.0"),
        (KOHYA, "NVIDIA GeForce RTX 3090", "8.6"),
        (TWO_STARTS, "NVIDIA GeForce RTX 3070", "8.6"),
    ],
)
def test_gpu_of_a_start(text: str, name: str, capability: str) -> None:
    gpus = parse_report(text).machine.gpus.value
    assert [(gpu.name.value, gpu.compute_capability.value) for gpu in gpus or ()] == [(name, capability)]


@each_case(
    ("text", "cause"),
    [
        (SDNEXT, "gpu-arch-not-in-build"),
        (TWO_STARTS, "torch-cpu-build"),
        (f"my GPU is not detected.\nwhen I run the code I get '{YOLO}'", "torch-cpu-build"),
        ("torch 2.6.0+cpu, Windows 11. It does not use the GPU, only the processor", "torch-cpu-build"),
        ("Windows 11, torch 2.6.0+cpu, python 3.12. 训练的时候用不了显卡", "torch-cpu-build"),
        (f"How do I run it faster? It can't use my GPU.\n{YOLO}", "torch-cpu-build"),
    ],
)
def test_cause_of_a_start(text: str, cause: str) -> None:
    assert cause in blamed_causes(text)


@each_case(
    "text",
    [
        YOLO_CHECKS,
        KOHYA,
        f"{YOLO}\nlearning rate 0.01, batch 16, the loss is nan after epoch 3",  # no GPU is named
        f"{YOLO}\nI have no GPU, is there a faster model?",
        TWO_STARTS.partition("\n")[0],
        (
            "The pinned `torch==2.4.1+cu118` build ships no `sm_120` kernels and cannot run on the RTX 5080.\n"
            "The benchmark was executed with\n  - `torch 2.11.0+cu128`\n  - `torchvision 0.26.0+cu128`\n"
        ),
        (
            "vllm 0.8.5.post1 requires transformers>=4.51.1. So, installing transformers==4.27.0 created a "
            "new error.\nMy final versions:\n```\nnumpy==1.26.4\ntransformers==4.51.3\nvllm==0.8.5.post1\n```"
        ),
        (
            "Just did a build and saw this message in the log. Is this to be expected?\n"
            "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum cuda capability supported "
            "by this version of PyTorch is (8.0) - (12.0)"
        ),
    ],
)
def test_healthy_start(text: str) -> None:
    assert blamed_causes(text) == set()


SOLVED = 'In WSL2 all models fail: "Found no NVIDIA driver on your system." After the update of the kernel: '


@each_case(
    ("text", "blamed"),
    [
        (f"{SOLVED}Everything is fine now, except that my 2080ti does not support FP8", False),
        (f"{SOLVED}now it works, thanks", False),
        (f"{SOLVED}the problem is solved", False),
        (f"{SOLVED}it works now only without the GPU", True),
        (f"{SOLVED}how can this problem be solved", True),
        (f"{SOLVED}everything is fine now\nRuntimeError: Found no NVIDIA driver on your system.", True),
    ],
)
def test_problem_that_is_solved(text: str, *, blamed: bool) -> None:
    assert bool(blamed_causes(text)) == blamed


def test_gpu_in_a_quote_and_after_no_kernel_image() -> None:
    quote = 'it prints "NVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with this PyTorch'
    title = "CUDA error: no kernel image is available for execution on the device with quadro m4000 GPU"
    names = [gpu.name.value for text in (quote, title) for gpu in parse_report(text).machine.gpus.value or ()]
    assert names == ["NVIDIA GeForce RTX 5070 Ti", "quadro m4000"]
    assert "gpu-arch-dropped" in blamed_causes(title)
    assert value_at(parse_report("env:TeslaV100,driver 560.35.03 cuda 12.4"), "machine.driver.version") == "560.35.03"


@each_case(
    ("system", "text", "commands"),
    [
        (
            "Windows 10",
            "OSError: CUDA_HOME environment variable is not set.",
            [r'dir "C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"', "nvcc --version"],
        ),
        (
            "WSL2",
            "RuntimeError: Found no NVIDIA driver on your system.",
            ["nvidia-smi", "wsl --update  # in Windows", "wsl --shutdown  # in Windows"],
        ),
        (
            "Windows 11",
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
            ["nvidia-smi", "envdoctor check"],
        ),
        (
            "Ubuntu 22.04",
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
            ["nvidia-smi | grep 'CUDA Version'", "envdoctor check"],
        ),
    ],
)
def test_commands_of_lines_run_on_the_system(system: str, text: str, commands: list[str]) -> None:
    found = diagnose_report(parse_report(f"OS: {system}\nPython: 3.10.11\n{text}"))
    blamed = (each for each in found if each.status in ("error", "warning"))
    printed = [command for each in blamed for remedy in each.remedies for command in remedy.commands]
    assert printed == commands


@each_case(
    "line",
    [
        "OSError: [WinError -1073741795] Windows Error 0xc000001d",
        "The backend exits with Windows code 3221225501",
        "Process finished with exit code -1073741795 (0xC000001D)",
    ],
)
def test_illegal_instruction_on_windows(line: str) -> None:
    text = f"Windows 11, RTX 5090, torch 2.10.0+cu128, Python 3.13\n{line}"
    assert blamed_causes(text) == {"cpu-too-old"}
    assert not any(each.remedies for each in diagnose_report(parse_report(text)))  # lscpu, grep


def test_access_violation_is_no_illegal_instruction() -> None:
    text = "Windows 11, RTX 5090, torch 2.10.0+cu128\nexit code 3221225477 (0xC0000005): access violation"
    assert "cpu-too-old" not in blamed_causes(text)


def test_release_of_a_message_counts_although_the_report_has_another_one() -> None:
    text = (
        "torch 2.4.1, Python 3.12.6, Windows 11\n"
        "ERROR: Could not find a version that satisfies the requirement torch==2.1.2 (from versions: 2.2.0, 2.4.1)\n"
    )
    assert "python-unsupported" in blamed_causes(text)


@each_case(
    "text",
    [
        "RTX 5090, torch 2.9.1+cu128\nCUDA error: no kernel image is available for execution on the device",
        "nvidia-smi works on my H100\nIt fails to run: the GPU cannot be used in bf16, compute capability too low",
    ],
)
def test_fix_has_no_placeholders(text: str) -> None:
    assert not [finding.fix for finding in diagnose_report(parse_report(text)) if "{" in finding.fix]
