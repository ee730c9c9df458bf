"""Samples in the layouts of real tools (tests/data/report_samples), also after a log or a page changed them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.report_samples import gpus, versions
from test_reports_formats import fact

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import Report, parse_report
from envdoctor.reports.coverage import measure_coverage

SAMPLES = Path(__file__).parents[2] / "data" / "report_samples"
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


# Of each sample: facts, names of GPUs, some packages, causes of errors.
EXPECTED: dict[str, tuple[dict[str, Any], list[str], dict[str, str], list[str]]] = {
    "comfyui-log": ({"system.os": "Windows", "stack.python_version": "3.12.10", "stack.torch.cuda": "12.8"},
                    ["NVIDIA GeForce RTX 5060 Ti"], {"comfyui": "0.3.44"}, []),
    "comfyui-error": ({"system.os": "Windows", "stack.torch.cuda": "12.1"}, ["NVIDIA GeForce RTX 5070"],
                      {"comfyui": "0.3.39", "torch": "2.5.1+cu121"}, ["gpu-arch-not-in-build"]),
    "pip-build-log": ({}, [], {"my-own-tool": "0.3.2", "torchaudio": "2.7.0", "nvidia-cudnn-cu12": "9.10.2.21"},
                      ["torch-companion-mismatch"]),
    "pip-compose-log": ({"stack.torch.cuda": "12.4"}, [],
                        {"zope-interface": "7.2", "typing-extensions": "4.12.2", "flash-attn": "2.7.4.post1"}, []),
    "uv-pip-list": ({"stack.python_version": "3.12.11", "stack.python": "/home/ines/serve/.venv"}, [],
                    {"torch": "2.9.0+cu129", "vllm": "0.12.0"}, []),
    "uv-pip-list-pod": ({"stack.python_version": "3.11.9"}, [], {"mytrainer": "0.1.0", "trl": "0.19.1"}, []),
    "conda-list-grep": ({"stack.kind": "conda", "stack.torch.cuda": "12.6"}, [], {"numpy": "1.26.4"}, []),
    "conda-list-quoted": ({"stack.kind": "conda", "stack.torch.cuda": "12.1"}, [], {"vllm": "0.6.1.post2"}, []),
    "pixi-list": ({"stack.torch.cuda": "12.9"}, [], {"torch": "2.7.1", "torchmetrics": "1.7.3"}, []),
    "pixi-list-colours": ({"stack.torch.cuda": "12.8"}, [], {"flash-attn": "2.8.3"}, []),
    "windows-cpu-torch": ({"driver.version": "572.83", "stack.torch.cuda": "absent"}, ["NVIDIA GeForce RTX 4070"],
                          {}, ["torch-cpu-build"]),
    "macos-transformers": ({"system.os": "macOS 15.6", "system.architecture": "arm64"}, [],
                           {"transformers": "4.56.0"}, []),
    "macos-list": ({"system.os": "macOS Sequoia 15.5", "stack.cuda_available": False}, [], {"torch": "2.7.0"}, []),
    "kubectl-pod": ({"system.container": "kubernetes", "stack.torch.cuda": "12.8"}, [], {"vllm": "0.9.2"},
                    ["host-oom-runtime"]),
    "kubectl-node": ({"driver.version": "550.127.08", "driver.cuda": "12.4", "system.architecture": "x86_64"},
                     ["NVIDIA A10G"] * 4, {}, []),
    "slurm-job": ({"slurm": {"SLURM_JOB_ID": "48213"}}, [], {}, ["host-oom-runtime"]),
    "slurm-node": ({"system.kernel": "5.15.0-1063-nvidia", "system.cpu_count": 256}, ["A100"] * 8, {}, []),
    "ray-status": ({"gpus": "unreadable"}, [], {}, []),
    "sglang": ({"driver.version": "550.144.03", "cuda.nvcc_version": "12.9.86", "stack.torch.cuda": "12.9"},
               ["NVIDIA H20"] * 4, {"sglang": "0.5.4", "flashinfer-python": "0.4.1"}, []),
    "flashinfer-json": ({"driver.version": "580.95.05", "stack.python_version": "3.12.3"}, ["NVIDIA B200"] * 2,
                        {"flashinfer": "0.4.1", "torch": "2.9.0+cu130"}, []),
    "nvidia-smi-q": ({"driver.version": "570.158.01", "driver.cuda": "12.8"}, ["NVIDIA L4"], {}, []),
    "nvidia-smi": ({"driver.version": "575.64.03", "driver.cuda": "12.9"}, [H200] * 2, {}, []),
    "topo": ({"gpus": "unreadable", "driver.version": "unreadable"}, [], {}, []),
    "dcgmi-discovery": ({"driver.version": "unreadable"}, ["NVIDIA A40"] * 2, {}, []),
    "dcgmi-diag": ({"driver.version": "535.183.06"}, [], {}, []),
    "rocm-smi": ({"gpus": "absent"}, [], {}, []),
    "amd-smi": ({"gpus": "absent"}, [], {}, []),
    "docker-inspect": ({"stack.torch.version": "2.6.0", "cuda.nvcc_version": "12.4"}, [], {}, []),
    "vllm-collect-env": ({"driver.version": "570.172.08", "cuda.nvcc_version": "12.8.93", "system.glibc": "2.39"},
                         [H100] * 2, {"vllm": "0.11.0", "transformers": "4.57.1"}, []),
}  # fmt: skip


def names_of(report: Report) -> list[str]:
    return [gpu.name.value or "" for gpu in gpus(report)] if report.machine.gpus.value else []


LAYOUTS = {row["name"]: row for row in json.loads((SAMPLES.parent / "report_layouts.json").read_text())}


@each_case("name", LAYOUTS)
def test_other_layouts_of_each_tool(name: str) -> None:
    """Texts in other versions and settings of the tools, also wrapped, quoted, cut, prefixed and in tables."""
    row = LAYOUTS[name]
    report = parse_report(row["text"])
    assert {path: fact(report, path) for path in row["facts"]} == row["facts"]
    assert names_of(report) == row["gpus"]
    assert {package: versions(report).get(package) for package in row["packages"]} == row["packages"]


@each_case("name", sorted(path.stem for path in SAMPLES.glob("*.txt")))
def test_facts_of_a_sample(name: str) -> None:
    facts, names, packages, causes = EXPECTED[name]
    report = parse_report(sample(name))
    assert {path: fact(report, path) for path in facts} == facts
    assert names_of(report) == names
    assert {package: versions(report).get(package) for package in packages} == packages
    assert [finding.cause for finding in diagnose_report(report) if finding.status == "error"] == causes


def test_state_of_a_failed_job_is_kept_for_its_cause() -> None:
    report = parse_report(sample("slurm-job"))
    assert "JobState=OUT_OF_MEMORY" in report.errors
    assert "JobState" not in parse_report(sample("slurm-job").replace("OUT_OF_MEMORY", "RUNNING")).errors


@each_case(
    ("row", "message"),
    [
        ("", None),
        ("| PCIe                      | Fail - GPUs: 0, 2                              |", "PCIe"),
        ("| pcie                      | Fail                                           |", "pcie"),
        ("| Targeted Power            | Fail - All                                     |", "Targeted Power"),
        ("| Page Retirement/Row Remap | Fail                                           |", "Row Remap"),
        ("| Targeted Power            | Skip - All                                     |", None),
        ("|                           | GPU0: Pass                                     |", None),
    ],
)
def test_a_failed_test_of_dcgm_is_reported_and_a_passed_one_is_not(row: str, message: str | None) -> None:
    heading, *rows = sample("dcgmi-diag").splitlines()
    passed = "| Page Retirement/Row Remap | Pass                                           |"
    found = diagnose_report(parse_report("\n".join([heading, *rows, passed, row])))
    assert [message in finding.message for finding in found] == ([True] if message else []), found


def test_the_header_of_a_list_of_uv_belongs_to_it() -> None:
    report = parse_report(sample("uv-pip-list"))
    assert (report.kinds, measure_coverage(report).unread) == (("uv pip list",), ())
    assert "Package" not in report.errors


def with_prefix(prefix: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{prefix}{line}\n" for line in text.splitlines())


def with_traceback(text: str) -> str:
    lines = text.splitlines()
    broken = [
        "Traceback (most recent call last):",
        '  File "/srv/app/train.py", line 3, in <module>',
        "OSError: stopped here",
    ]
    return "\n".join([*lines[: len(lines) // 2], *broken, *lines[len(lines) // 2 :]])


CHANGES: dict[str, Callable[[str], str]] = {
    "journal": with_prefix("Mar 01 12:00:00 gpu01 serve.sh[4123]: "),
    "kubernetes": with_prefix("2026-03-01T12:00:00.123456789Z "),
    "compose": with_prefix("worker-1  | "),
    "ray": with_prefix("(TaskRunner pid=81234, ip=10.2.0.7) "),
    "torchrun": with_prefix("[rank0]: "),
    "mail": with_prefix("> > "),
    "numbers": lambda text: "".join(f"{number:>4}\t{line}\n" for number, line in enumerate(text.splitlines(), 1)),
    "trimmed": lambda text: "\n".join(" ".join(line.split()) for line in text.splitlines()),
    "one line": lambda text: text.replace("\n", " "),
    "traceback": with_traceback,
    "fences": lambda text: f"<details><summary>report</summary>\n\n```text\n{text}\n```\n</details>\n",
    "windows": lambda text: text.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", ["vllm-collect-env", "nvidia-smi"])
@pytest.mark.parametrize("change", CHANGES)
def test_facts_survive_changes_of_lines(name: str, change: str) -> None:
    facts, names, packages, _ = EXPECTED[name]
    report = parse_report(CHANGES[change](sample(name)))
    assert {path: fact(report, path) for path in facts} == facts
    assert names_of(report) == names
    assert {package: versions(report).get(package) for package in packages} == packages
    assert ("OSError: stopped here" in report.errors) == (change == "traceback")


EVERY_LINE: dict[str, Callable[[str], str]] = {
    **{name: CHANGES[name] for name in ("kubernetes", "ray", "torchrun", "mail", "windows", "fences")},
    "actions": with_prefix("2026-03-01T12:00:00.1234567Z ##[info] "),
    "diff": with_prefix("+"),
    "comment": with_prefix("# "),
    "srun": with_prefix(" 3: "),
    "pod": with_prefix("pod/trainer-0 "),
    "node": with_prefix("gpu07: "),
    "tabs": with_prefix("\t"),
    "hard spaces": lambda text: text.replace(" ", "\xa0"),
    "entities": lambda text: html.escape(html.escape(text)),
    "hard breaks": lambda text: text.replace("\n", "\\\n"),
    "escapes": lambda text: re.sub(r"([_*<>\[\]])", r"\\\1", text),
    "one string": lambda text: text.replace("\n", "\\n"),
    "JSON": lambda text: json.dumps({"log": text}),
}
# Samples of less lines than a decoration is recognized by, and samples that a change makes ambiguous.
SHORT = {"pip-build-log", "pip-compose-log", "flashinfer-json", "amd-smi", "slurm-job", "pixi-list-colours"}


@pytest.mark.parametrize("change", EVERY_LINE)
def test_facts_survive_a_change_of_every_line(change: str) -> None:
    for name in EXPECTED.keys() - SHORT:
        facts, names, packages, _ = EXPECTED[name]
        report = parse_report(EVERY_LINE[change](sample(name)))
        assert {path: fact(report, path) for path in facts} == facts, name
        assert names_of(report) == names, name
        assert {package: versions(report).get(package) for package in packages} == packages, name


@pytest.mark.parametrize("columns", [50, 60, 72, 80])
def test_a_table_that_a_narrow_terminal_wrapped(columns: int) -> None:
    pieces = [
        line[n : n + columns] for line in sample("nvidia-smi").splitlines() for n in range(0, len(line), columns)
    ]
    report = parse_report("\n".join(pieces))
    assert fact(report, "driver.version") == "575.64.03"
    assert names_of(report) == [H200] * 2
