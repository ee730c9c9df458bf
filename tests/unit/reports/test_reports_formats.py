"""Excerpts of reports in public threads, in tests/data/report_formats. The first line of a file is its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.explained import explain_text
from support.report_facts import fact
from support.report_samples import gpus, versions

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report
from envdoctor.reports.coverage import measure_coverage
from envdoctor.rules import evaluate

FORMATS = Path(__file__).parents[2] / "data" / "report_formats"


def excerpt(name: str) -> str:
    """The text of a file without its source."""
    return (FORMATS / f"{name}.txt").read_text().split("\n", 1)[1]


@each_case(
    ("name", "kind", "facts", "names"),
    [
        ("comfyui-windows", "ComfyUI system information", {
            "system.os": "Windows", "system.architecture": "x86_64", "stack.python_version": "3.12.9",
            "stack.torch.version": "2.6.0+cu126", "stack.torch.cuda": "12.6",
        }, ["NVIDIA GeForce RTX 5070 Ti"]),
        ("comfyui-macos", "ComfyUI system information", {
            "system.os": "macOS", "stack.torch.version": "2.10.0", "gpus": "absent",
        }, []),
        ("comfyui-launcher", "device list", {
            "system.os": "Microsoft Windows NT 10.0.19045.0", "driver.version": "565.90",
        }, ["NVIDIA GeForce RTX 2080 Ti"]),
        ("comfyui-log", "ComfyUI log", {
            "system.os": "Windows", "stack.python_version": "3.12.9", "stack.torch.version": "2.7.0+cu128",
        }, ["NVIDIA GeForce RTX 4090"]),
        ("comfyui-interleaved-log", "ComfyUI log", {
            "system.os": "Windows", "stack.python_version": "3.12.9",
            "stack.python": "D:\\ComfyUI\\.venv\\Scripts\\python.exe",
        }, []),
        ("collect-env-rocm", "collect_env (vLLM)", {
            "gpus": "absent", "stack.torch.cuda": "absent", "stack.torch.hip": "7.2.26015-fc0010cf6a",
            "stack.kind": "unreadable",
        }, []),
        ("nvidia-smi-slurm", "nvidia-smi", {"driver.version": "460.32.03"}, ["A100-SXM4-40GB"] * 2),
        ("nvidia-smi-xml", "nvidia-smi -q", {
            "driver.version": "591.74", "driver.cuda": "13.1",
        }, ["NVIDIA GeForce RTX 4090"]),
        ("lspci", "lspci", {"driver.version": "unreadable"}, ["GeForce GTX 780 Ti"] * 3),
        ("wsl-form", "handwritten list", {
            "system.os": "Ubuntu 22.04", "system.kernel": "5.15.90.1-microsoft-standard-WSL2",
            "driver.version": "528.49",
        }, ["GeForce RTX 3070"]),
        ("pip-already-satisfied", "pip install", {
            "stack.torch.version": "2.4.0+cu124", "stack.python_version": "3.10",
        }, []),
        ("flashinfer-gb200", "flashinfer collect_env", {
            "system.os": "Ubuntu 24.04.4 LTS", "system.architecture": "aarch64", "system.glibc": "2.39",
            "driver.version": "580.126.09", "stack.python_version": "3.12.3", "stack.kind": "venv",
            "stack.python": "/srv/lena/serve/.venv/bin/python",
        }, ["NVIDIA GB200", "NVIDIA GB200"]),
        ("pixi-list", "pixi list", {
            "stack.kind": "conda", "stack.torch.version": "2.5.1", "stack.torch.cuda": "12.6",
        }, []),
        ("uv-install", "pip install", {"stack.torch.version": "2.7.1+cu128", "stack.torch.cuda": "12.8"}, []),
        ("rocm-smi-all", "rocm-smi", {"gpus": "absent", "driver.version": "unreadable"}, []),
        ("dcgmi-null", "dcgmi discovery", {}, [None]),
        ("dcgmi-failed", "dcgmi diag", {}, []),
        ("dcgmi-h800", "dcgmi discovery", {}, ["NVIDIA H800", "NVIDIA H800"]),
        ("dcgmi-list", "dcgmi discovery", {}, ["Quadro RTX 5000", "Quadro RTX 5000"]),
        ("kubectl-node", "kubectl describe node", {}, ["NVIDIA A100 SXM4 80GB"] * 8),
        ("kubectl-resources", "kubectl describe node", {}, [None] * 8),
        ("slurm-node", "scontrol show", {
            "system.architecture": "x86_64", "system.kernel": "6.8.0-1045-aws", "system.cpu_count": 32,
            "memory.total": 249036 << 20, "gpus": "unreadable",
        }, []),
        ("slurm-one-line", "scontrol show", {"system.kernel": "5.14.0-687.24.1.el9_8.x86_64"}, ["A40"]),
        ("ray-status", "ray status", {}, ["V100"]),
        ("nvidia-container-cli", "nvidia-container-cli info", {
            "driver.version": "535.113.01", "driver.cuda": "12.2",
        }, ["NVIDIA GeForce RTX 4090"]),
        ("collect-env-macos", "collect_env (PyTorch)", {
            "system.os": "macOS 14.5", "stack.python_version": "3.10.13", "stack.torch.version": "2.2.2",
            "gpus": "absent",
        }, []),
        ("conda-list-windows", "conda list", {"stack.kind": "conda"}, []),
        ("sglang-check-env", "sglang check_env", {
            "driver.version": "535.54.03", "stack.torch.version": "2.3.0+cu121", "cuda.nvcc_version": "12.2.140",
        }, ["NVIDIA A100-SXM4-80GB"]),
    ],
)  # fmt: skip
def test_facts_of_formats(name: str, kind: str, facts: dict[str, Any], names: list[str | None]) -> None:
    report = parse_report(excerpt(name))
    assert kind in report.kinds
    assert {path: fact(report, path) for path in facts} == facts
    assert [gpu.name.value for gpu in report.machine.gpus.value or ()] == names


@pytest.mark.parametrize("indent", [2, None])
def test_json_of_a_report_has_the_facts_of_its_text(indent: int | None) -> None:
    """`flashinfer collect-env --json` prints the sections of the text as an object."""
    sections: dict[str, dict[str, str]] = {}
    for line in excerpt("flashinfer-gb200").splitlines():
        if line.startswith("===="):
            current = sections.setdefault(line.strip("= "), {})
        elif " : " in line:
            key, _, value = line.partition(" : ")
            current[key.strip()] = value
    expected, found = parse_report(excerpt("flashinfer-gb200")), parse_report(json.dumps(sections, indent=indent))
    assert (found.machine.gpus.value, found.machine.driver.version.value) == (
        expected.machine.gpus.value, expected.machine.driver.version.value
    )  # fmt: skip
    assert found.stack.python_version.value == "3.12.3"


def test_the_configuration_of_a_model_is_not_an_installed_version() -> None:
    lines = '{\n  "model_type": "llama",\n  "transformers_version": "4.44.0",\n  "torch_dtype": "bfloat16"\n}\n'
    assert versions(parse_report(lines)) == {}
    assert versions(parse_report(json.dumps(json.loads(lines)) * 2)) == {}


def test_docker_inspect() -> None:
    report = parse_report(excerpt("docker-inspect"))
    assert (report.machine.environment.value or {})["NVIDIA_REQUIRE_CUDA"].startswith("cuda>=12.2")
    image = '"Image": "vllm/vllm-openai:v0.9.0"'
    host = f'"HostConfig": {{\n"IpcMode": "%s",\n"ShmSize": 67108864,\n"Runtime": "nvidia"\n}}\n{image}'
    private, shared = parse_report(host % "private"), parse_report(host % "host")
    assert (private.machine.storage.places.value or {})["shm"].total == 64 << 20
    assert shared.machine.storage.places.value is None
    assert versions(private) == {"torch": "2.7.0", "vllm": "0.9.0"}


@each_case(
    ("line", "facts"),
    [
        ("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04", {
            "cuda.nvcc_version": "12.4.1", "system.os": "Ubuntu 22.04", "system.glibc": "2.35",
        }),
        ("FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu20.04", {
            "cuda.nvcc_version": "unreadable", "system.glibc": "2.31",
        }),
        ("docker run --rm --gpus all pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel", {
            "stack.torch.version": "2.4.0", "stack.torch.cuda": "12.1", "system.container": "docker",
        }),
        ("    Image:          python:3.11-slim", {"stack.python_version": "3.11"}),
        ("docker run --gpus all --rm -it nvcr.io/nvidia/pytorch:25.08-py3", {
            "stack.torch.version": "2.8.0a0+34c6371d24.nv25.08", "stack.torch.cuda": "13.0",
            "stack.python_version": "3.12", "cuda.nvcc_version": "13.0.0", "system.glibc": "2.39",
        }),
        ("    image: nvcr.io/nvidia/pytorch:24.10-py3", {"stack.torch.cuda": "12.6", "system.os": "Ubuntu 22.04"}),
        ('"Image": "nvcr.io/nvidia/pytorch:26.09-py3",', {"stack.torch.cuda": "13.4", "system.glibc": "2.39"}),
        ("    Image:         nvcr.io/nvidia/pytorch:99.01-py3", {
            "stack.torch": "unreadable", "system.container": "docker",
        }),
        ("FROM nvidia/cuda:12.8.1-devel-rockylinux8", {"cuda.nvcc_version": "12.8.1", "system.glibc": "2.28"}),
        ("docker run --rm --gpus all nvidia/cuda:11.8.0-base-ubuntu20.04 nvidia-smi", {"system.glibc": "unreadable"}),
        ("docker pull rocm/vllm:rocm6.3.1_vllm_0.8.5", {"gpus": "absent", "stack.torch.hip": "6.3.1"}),
        (
            "docker run -it --device=/dev/kfd rocm/pytorch:rocm6.2_ubuntu22.04_py3.10_pytorch_release_2.3.0",
            {
                "gpus": "absent", "stack.torch.version": "2.3.0", "stack.torch.hip": "6.2",
                "stack.torch.cuda": "absent", "stack.python_version": "3.10", "system.os": "Ubuntu 22.04",
            },
        ),
        ("image: registry.example.com/team/pytorch:2.4.0-cuda12.1-mine", {"stack.torch": "unreadable"}),
        ("docker run --runtime nvidia --gpus all vllm/vllm-openai:v0.10.2 --model x", {
            "stack.torch.version": "2.8.0", "stack.torch.cuda": "12.8", "stack.python_version": "3.12",
            "system.os": "Ubuntu 22.04", "cuda.nvcc_version": "unreadable",
        }),
        ("    Image:  vllm/vllm-openai:v0.20.1-cu129", {"stack.torch.version": "2.11.0", "stack.torch.cuda": "12.9"}),
        ("image: ghcr.io/huggingface/text-generation-inference:3.3.4", {
            "stack.torch.version": "2.7.0", "stack.torch.cuda": "12.6", "stack.python_version": "3.11",
        }),
        ("docker pull lmsysorg/sglang:v0.5.5-cu129", {"stack.torch.version": "2.8.0", "stack.torch.cuda": "12.9"}),
        ("docker pull lmsysorg/sglang:v0.5.5-cu130", {"stack.torch": "unreadable", "system.container": "docker"}),
        ("image: huggingface/trl:0.26.0", {"stack.torch.version": "2.8.0", "stack.torch.cuda": "12.8"}),
        ("image: hiyouga/verl:ngc-th2.6.0-cu126-vllm0.8.4-flashinfer0.2.2-cxx11abi0", {
            "stack.torch.version": "2.6.0", "stack.torch.cuda": "12.6",
        }),
        ("image: verlai/verl:app-verl0.5-transformers4.55.4-vllm0.10.0-mcore0.13.0-te2.2", {
            "stack.torch.version": "2.7.1", "stack.torch.cuda": "unreadable",
        }),
        ("image: verlai/verl:base-verl0.4-cu124-cudnn9.8-torch2.6-fa2.7.4", {"stack.torch.version": "2.6.0"}),
        ("image: nvcr.io/nvidia/nemo:24.05", {"stack.torch.version": "2.3.0a0", "stack.torch.cuda": "12.3"}),
        ("image: nvcr.io/nvidia/nemo-rl:v0.5.0", {"stack.torch.version": "2.9.0"}),
    ],
)  # fmt: skip
def test_names_of_container_images(line: str, facts: dict[str, Any]) -> None:
    report = parse_report(line)
    assert {path: fact(report, path) for path in facts} == facts


def test_lists_that_a_web_page_changed() -> None:
    table = "| Package | Version |\n|---|---|\n| torch | 2.8.0+cu128 |\n| `einops` | 0.8.1 |\n| gpus | 8 |\n"
    assert versions(parse_report(table)) == {"torch": "2.8.0+cu128", "einops": "0.8.1"}
    labels = "numpy : 2.2.6\nnvidia-nccl-cu12 : 2.27.3\ntorch : 2.8.0+cu128\nvllm : 0.11.0  (declares flashinfer)\n"
    assert versions(parse_report(labels))["vllm"] == "0.11.0"
    assert set(versions(parse_report("epochs : 3.0\nlearning_rate : 1.5\nloss : 0.3\n"))) == set()


@pytest.mark.parametrize("name", ["collect-env-macos", "collect-env-rocm", "nvidia-smi-slurm", "sglang-check-env"])
@pytest.mark.parametrize("change", ["numbered", "prefixed", "quoted", "one line", "html"])
def test_facts_survive_what_pages_and_logs_do_to_lines(name: str, change: str) -> None:
    lines = excerpt(name).splitlines()
    changes = {
        "numbered": "\n".join(f"{number:4}  {line}" for number, line in enumerate(lines, 1)),
        "prefixed": "\n".join(f"(EngineCore_DP0 pid=71) 2025-10-30T21:54:45.622Z {line}" for line in lines),
        "quoted": "\n".join(f"> {line}" for line in lines),
        "one line": " ".join(" ".join(lines).split()),
        "html": f"<details><summary>x</summary><pre>{'<br>'.join(lines)}</pre></details>",
    }
    found, expected = parse_report(changes[change]), parse_report(excerpt(name))
    assert found.stack.torch == expected.stack.torch
    assert (found.machine.driver, found.machine.gpus.value) == (expected.machine.driver, expected.machine.gpus.value)


def test_cells_of_a_html_table_are_separate() -> None:
    rows = "".join(
        f"<tr><td>{name}</td><td>{version}</td></tr>" for name, version in (("torch", "2.7.0"), ("einops", "0.8.1"))
    )
    table = f"<table><tr><th>Package</th><th>Version</th></tr>{rows}</table>"
    assert versions(parse_report(table)) == {"torch": "2.7.0", "einops": "0.8.1"}


def test_lists_on_one_line_and_in_markdown() -> None:
    flat = f"Package Version {'-' * 40} {'-' * 13} absl-py 2.1.0 torch 2.6.0+cu124 vllm 0.8.2 aiohappyeyeballs 2.6.1 "
    assert versions(parse_report(flat + "anyio 4.9.0 " * 10))["vllm"] == "0.8.2"
    conda = parse_report(excerpt("conda-list-markdown"))
    assert (conda.kinds, versions(conda)["cudatoolkit"]) == (("conda list",), "10.1.243")


def test_pip_replaces_a_version_that_it_installs_again() -> None:
    text = (
        "Successfully installed torch-2.4.0 filelock-3.1\nSuccessfully installed torch-2.7.0+cu128 xformers-0.0.30\n"
    )
    assert versions(parse_report(text)) == {"torch": "2.7.0+cu128", "filelock": "3.1", "xformers": "0.0.30"}
    kept = "Requirement already satisfied: torch>=2.0 in ./v/lib/python3.11/site-packages (from vllm) (2.4.0)\n"
    assert (versions(parse_report(kept)), parse_report(kept).stack.python_version.value) == (
        {"torch": "2.4.0"},
        "3.11",
    )


PIP_LOG = """\
Collecting torch>=1.13 (from open-clip-torch)
  Downloading torch-2.9.1-cp312-cp312-{platform}.whl.metadata (30 kB)
Installing collected packages: torch, open-clip-torch
  Attempting uninstall: torch
    Found existing installation: torch {old}
    Uninstalling torch-{old}:
      Successfully uninstalled torch-{old}
Successfully installed open-clip-torch-3.2.0 torch-{new}
"""
UV_LOG = (
    "PS D:\\ai> uv pip install -U accelerate\nInstalled 2 packages in 1s\n - torch==2.7.1+cu128\n + torch==2.9.1\n"
)


@each_case(
    ("text", "errors"),
    [
        (PIP_LOG.format(platform="win_amd64", old="2.7.1+cu128", new="2.9.1"), ["TORCH003"]),
        (PIP_LOG.format(platform="win_amd64", old="2.9.1", new="2.9.1+cu128"), []),
        (PIP_LOG.format(platform="manylinux_2_28_x86_64", old="2.7.1+cu128", new="2.9.1"), []),
        (PIP_LOG.format(platform="manylinux_2_28_aarch64", old="2.8.0+cu129", new="2.9.1"), ["TORCH003"]),
        (PIP_LOG.format(platform="win_amd64", old="2.7.1", new="2.9.1"), []),
        (UV_LOG, ["TORCH003"]),
    ],
)
def test_an_installation_that_replaces_a_cuda_torch_by_a_cpu_build(text: str, errors: list[str]) -> None:
    report = parse_report(text)
    assert versions(report)["torch"].startswith("2.9.1")
    assert [row.id for row in evaluate(report.machine, report.stack) if row.status == "error"] == errors
    assert measure_coverage(report).unread == ()


REPORT = (
    "Collecting environment information...\nPyTorch version: {torch}\nIs debug build: False\n"
    "CUDA used to build PyTorch: {cuda}\nOS: Ubuntu 22.04.5 LTS (x86_64)\nPython version: 3.12.3 (main)\n"
    "Is CUDA available: True\nGPU models and configuration: GPU 0: {gpu}\nNvidia driver version: {driver}\n"
    "[pip3] torch=={torch}\n"
)
FIRST = REPORT.format(torch="2.4.0+cu121", cuda="12.1", gpu="NVIDIA A100-SXM4-80GB", driver="550.54.15")
SECOND = REPORT.format(torch="2.8.0+cu128", cuda="12.8", gpu="NVIDIA L40S", driver="580.65.06")


def test_of_two_reports_the_facts_are_those_of_the_first() -> None:
    report = parse_report(f"old machine:\n{FIRST}\nnew machine:\n{SECOND}\nRuntimeError: CUDA error\n")
    assert fact(report, "stack.torch.version") == "2.4.0+cu121"
    assert fact(report, "driver.version") == "550.54.15"
    assert gpus(report)[0].name.value == "NVIDIA A100-SXM4-80GB"
    assert len(gpus(report)) == 1
    (note,) = report.notes
    assert "2 reports: torch 2.4.0+cu121 (line 3); torch 2.8.0+cu128 (line 15); the facts shown are those of" in note
    assert "RuntimeError: CUDA error" in report.errors
    assert "L40S" not in report.errors
    assert parse_report(FIRST + FIRST).notes == ()


HEADER = "$ pip list\nPackage Version\n--------------- ---------------\n"
GOOD = HEADER + "numpy 1.26.4\ntorch 2.6.0+cu124\ntorchvision 0.21.0+cu124\n"
BAD = GOOD.replace("torch 2.6.0+cu124", "torch 2.7.1+cu128")
SMI = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0 |\n"
ENV = (
    "- `transformers` version: 4.57.1\n- Platform: Linux-6.8.0-x86_64-with-glibc2.39\n- Python version: 3.12.3\n"
    "- PyTorch version (accelerator?): {torch} (CUDA)\n- GPU type: {gpu}\n"
)
NEW_GPU = "NVIDIA GeForce RTX 5090"


@each_case(
    ("text", "names", "findings"),
    [
        (FIRST + SECOND, ["torch 2.4.0+cu121 (line 2)", "torch 2.8.0+cu128 (line 12)"], []),
        (FIRST + SECOND.replace("2.8.0+cu128", "2.5.1+cu121").replace("12.8", "12.1").replace("NVIDIA L40S", NEW_GPU),
         ["torch 2.4.0+cu121 (line 2)", "torch 2.5.1+cu121 (line 12)"],
         ["torch 2.5.1+cu121 (line 12): torch 2.5.1+cu121 (CUDA 12.1) has no code for GPU 0"]),
        (GOOD + "\nand the one that fails:\n" + BAD, ["torch 2.6.0+cu124 (line 1)", "torch 2.7.1+cu128 (line 9)"],
         ["torch 2.7.1+cu128 (line 9): torchvision 0.21.0+cu124 requires torch==2.6.0"]),
        (BAD + GOOD + BAD, ["torch 2.7.1+cu128 (line 1)", "torch 2.6.0+cu124 (line 7)"],
         ["torch 2.7.1+cu128 (line 1): torchvision"]),
        (ENV.format(torch="2.8.0+cu128", gpu=NEW_GPU) + "\nolder:\n" + ENV.format(torch="2.5.1+cu121", gpu=NEW_GPU),
         ["torch 2.8.0+cu128 (line 1)", "torch 2.5.1+cu121 (line 8)"], ["torch 2.5.1+cu121 (line 8): torch 2.5.1"]),
        (SMI.replace("580.65.06", "470.57.02").replace("13.0", "11.4") + "after the upgrade\n" + SMI
         + "torch==2.8.0+cu128\nnumpy==2.2.1\n",
         ["driver 470.57.02 (line 1)", "driver 580.65.06 (line 3)"],
         ["driver 470.57.02 (line 1): driver 470.57.02; torch 2.8.0+cu128 is built for CUDA 12.8"]),
        (FIRST + FIRST, [""], []),
        (GOOD + GOOD, [""], []),
        (FIRST + BAD, [""], ["torchvision 0.21.0+cu124 requires torch==2.6.0"]),  # of one environment
    ],
)  # fmt: skip
def test_each_report_of_a_text_is_judged_and_named(text: str, names: list[str], findings: list[str]) -> None:
    report = parse_report(text)
    assert [each.name for each in (report, *report.later)] == names
    found = [each.message for each in diagnose_report(report) if each.status == "error"]
    assert len(found) == len(findings)
    for message, expected in zip(found, findings, strict=True):
        assert message.startswith(expected)


def test_of_many_reports_the_first_ones_are_judged() -> None:
    report = parse_report("".join(SECOND.replace("580.65.06", f"580.{number}.06") for number in range(60, 72)))
    coverage = measure_coverage(report)
    assert (len(report.later), report.left_out, coverage.missing, coverage.enough) == (7, 4, (), False)
    assert "4 more were not read" in coverage.notes[0]
    assert measure_coverage(parse_report(FIRST + SECOND)).enough


def test_explain_uses_the_findings_of_each_report() -> None:
    explained = explain_text(f"{GOOD}\nthe other one:\n{BAD}")
    assert explained.causes[0].cause == "torch-companion-mismatch"


def test_a_traceback_inside_a_report_is_kept_and_the_report_read() -> None:
    lines = FIRST.splitlines()
    broken = [
        "Traceback (most recent call last):",
        '  File "/x/collect_env.py", line 8, in run',
        "OSError: no such file",
    ]
    report = parse_report("\n".join([*lines[:4], *broken, *lines[4:]]))
    assert (report.machine, report.stack) == (parse_report(FIRST).machine, parse_report(FIRST).stack)
    assert "OSError: no such file" in report.errors


@each_case(
    ("text", "missing"),
    [
        (FIRST, []),
        ("torch==2.8.0\ntransformers==4.57.1\n", ["GPU", "driver"]),
        ("torch==2.10.0+rocm7.0\ntransformers==4.57.1\n", ["GPU"]),
        (
            "NVIDIA-SMI 580.65.06  Driver Version: 580.65.06  CUDA Version: 13.0\nGPU 0: NVIDIA L40S (UUID: GPU-1)\n",
            ["torch"],
        ),
        (excerpt("collect-env-macos"), []),
        (excerpt("dcgmi-null"), ["torch", "GPU", "driver"]),
        (excerpt("sglang-check-env"), []),
        (FIRST.replace("550.54.15", "Could not collect"), []),
    ],
)
def test_facts_that_a_verdict_needs(text: str, missing: list[str]) -> None:
    report = parse_report(text)
    coverage = measure_coverage(report)
    assert [each.fact for each in coverage.missing] == missing
    assert coverage.enough == (not missing)


def test_lines_that_were_not_understood_are_listed() -> None:
    text = f"{FIRST}Fancy CUDA bridge version: 7.1\n2026-01-01 10:00:00 INFO cuda version: 3\nloss: 0.3\n"
    report = parse_report(text)
    unread = measure_coverage(report).unread
    assert unread == ("Fancy CUDA bridge version: 7.1",)


def test_forms_of_issues_have_their_values_below_headings() -> None:
    form = "### Bug\n\nIt crashes.\n\n### GPU model\n\nNVIDIA A100 80GB PCIe\n\n### CUDA version\n\n12.1\n\n"
    report = parse_report(f"{form}### PyTorch version\n\n2.3.0\n\n### Operating System\n\nUbuntu 22.04\n")
    assert [gpu.name.value for gpu in gpus(report)] == ["NVIDIA A100 80GB PCIe"]
    assert (fact(report, "stack.torch.version"), fact(report, "stack.torch.cuda")) == ("2.3.0", "12.1")
    assert fact(report, "system.os") == "Ubuntu 22.04"
    assert report.errors.splitlines() == ["### Bug", "It crashes."]
