"""Spellings of a component and its version that people use in lists, sentences and forms of several languages."""

# ruff: noqa: RUF001 - the tests are about full-width and Cyrillic characters

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report
from envdoctor.reports.coverage import measure_coverage


def packages(text: str) -> dict[str, str]:
    return {each.name: each.version for each in (parse_report(text).stack.distributions.value or {}).values()}


@each_case(
    ("text", "name", "version"),
    [
        ("mmcv(2.1.0) conflicts with torch(2.3.0)", "mmcv", "2.1.0"),
        ("vllm ver. 0.8.5 on a server", "vllm", "0.8.5"),
        ("transformers ver 4.46.2", "transformers", "4.46.2"),
        ("transformers4.46.2 and peft0.14.0", "transformers", "4.46.2"),
        ("sglang_v0.4.6", "sglang", "0.4.6"),
        ("numpy @ 2.0.1", "numpy", "2.0.1"),
        ("tf 2.16 with keras 3.0.5", "tensorflow", "2.16"),
        ("bnb 0.41.1 in a venv", "bitsandbytes", "0.41.1"),
        ("ONNX Runtime GPU 1.18.0", "onnxruntime-gpu", "1.18.0"),
        ("Flash Attention 2.5.8 and Python 3.10", "flash-attn", "2.5.8"),
        ("xformers-Version: 0.0.28", "xformers", "0.0.28"),
        ("transformersのバージョン: 4.46.2", "transformers", "4.46.2"),
        ("accelerate 버전: 1.1.0", "accelerate", "1.1.0"),
        ("deepspeed 版本号：0.15.4", "deepspeed", "0.15.4"),
        ("### vLLM version\n\n0.8.5\n\n### GPU\n\nA100", "vllm", "0.8.5"),
        ("### Describe it\n\nIt fails\n\n### peft\n\n0.14.0", "peft", "0.14.0"),
        ("Env: dgl-2.1.0, Python 3.10", "dgl", "2.1.0"),
    ],
)
def test_a_package_is_read(text: str, name: str, version: str) -> None:
    assert packages(text).get(name) == version


@each_case(
    "text",
    [
        "range(2.5) and round(1.25) are calls",
        "FROM pytorch/pytorch2.4.0-cuda12.1-cudnn9",
        "the model llama3.1 and qwen2.5 work",
        "flash_attn-2.7.4+cu12torch2.3cxx11abiFALSE-cp310 is a wheel",
        "nvidia-smi: 470.57.02",
        "see https://example.org/vllm_v0.8.5/index.html",
    ],
)
def test_other_words_with_numbers_are_no_packages(text: str) -> None:
    assert not packages(text).keys() - {"flash-attn"}


@each_case(
    ("text", "fact", "value"),
    [
        ("GPU: RTX 4070, Driver 551.86", "driver", "551.86"),
        ("GPU: RTX 4070 (driver 551.86)", "driver", "551.86"),
        ("torch==2.5.1\nnvidia-smi: 470.57.02", "driver", "470.57.02"),
        ("torch==2.5.1\nDriver: 537.13\nBetriebssystem: Windows 11", "driver", "537.13"),
        ("ОС: Ubuntu 22.04\nДрайвер: 535.104.05", "driver", "535.104.05"),
        ("torch==2.5.1\nCUDA version (nvidia-smi): 11.4", "cuda of driver", "11.4"),
        ("torch==2.5.1\nCUDA Driver Version: 12.2", "cuda of driver", "12.2"),
        ("torch==2.5.1\nPython 版本：3.12", "python", "3.12"),
        ("torch==2.5.1\nPython(3.12)", "python", "3.12"),
        ("GPU: RTX 5070, torch 2.5.1+cu124, Python 3.11", "python", "3.11"),
        ("OS: Windows 11, Python 3.12, bitsandbytes 0.41.0", "system", "Windows 11"),
        ("torch==2.5.1 on Ubuntu22.04", "system", "Ubuntu 22.04"),
        ("torch==2.5.1\nCentos7.9", "system", "Centos 7.9"),
        ("PyTorch Version: 2.6.0+cu124 CUDA: 12.4 GPU: RTX 5090", "torch", "2.6.0+cu124"),
        ("Hardware: RTX 5090, 64GB RAM; Software: torch 2.6.0+cu124, CUDA 12.4", "torch", "2.6.0+cu124"),
        ("It runs, where the torch version is ``torch=2.1.0``.", "torch", "2.1.0"),
        ("cuda 12.1\ncudnn8\nonnxruntime-gpu 1.16", "toolkit", "12.1"),
        ("CUDA: 12.1\nonnxruntime-gpu 1.16", "toolkit", None),  # it can be that of the driver
    ],
)
def test_a_fact_of_a_line_is_read(text: str, fact: str, value: str | None) -> None:
    report = parse_report(text)
    machine, torch = report.machine, report.stack.torch.value
    facts = {
        "driver": machine.driver.version.value,
        "cuda of driver": machine.driver.cuda.value,
        "python": report.stack.python_version.value,
        "system": machine.system.os.value,
        "toolkit": machine.cuda.nvcc_version.value,
        "torch": torch.version.value if torch else None,
    }
    assert facts[fact] == value


@each_case(
    ("text", "capability"),
    [
        ("GPU: RTX 6000 Pro", "12.0"),
        ("GPU: Quadro RTX 6000", "7.5"),
        ("GPU: 5070Ti 16G", "12.0"),
        ("GPU: NVIDIA 5090D", "12.0"),
        ("NVIDIA RTX™ 4090", "8.9"),
        ("单卡4090, torch 2.5.1", "8.9"),
        ("GPU: NVIDIA 2050", "8.6"),
    ],
)
def test_a_gpu_is_known_in_its_short_names(text: str, capability: str) -> None:
    gpus = parse_report(f"torch==2.5.1\n{text}\n").machine.gpus.value or ()
    assert [gpu.compute_capability.value for gpu in gpus] == [capability]


@each_case(
    "text",
    [
        "## 设备信息\n- 设备名称：NVIDIA GeForce RTX 5070 Ti\n- Python版本：py31019\n- PyTorch版本：torch290cu128\n",
        "1. 请提供您使用的操作系统信息，如Linux/Windows/MacOS\nWindows\n2. Python版本\nPython 3.10.18\n",
        "Please describe the system (Linux, Windows, macOS):\nLinux\nPython 3.11\n",
    ],
)
def test_the_prompts_of_a_form_are_no_errors(text: str) -> None:
    assert not [each for each in diagnose_report(parse_report(text)) if each.status in ("error", "warning")]


def test_a_line_of_versions_that_were_read_is_understood() -> None:
    text = "**Environment:** Ubuntu 24.04 on WSL2, Windows driver 581.80, Python 3.12.3, PyTorch 2.9.1+cu128\n"
    assert measure_coverage(parse_report(text)).unread == ()
    assert measure_coverage(parse_report(text.replace("PyTorch", "frobnicator"))).unread


def test_a_toolkit_next_to_cudnn_is_compared_with_the_wheel() -> None:
    text = "my env is as follow:\ncuda 12.1\ncudnn8\nonnxruntime-gpu 1.16\n"
    assert "cudart-missing" in {each.cause for each in diagnose_report(parse_report(text))}
    assert not diagnose_report(parse_report(text.replace("12.1", "11.8")))
