"""Facts in single lines of logs and in sentences, and the findings that they give together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.report_samples import blamed_causes

from envdoctor.commands.report_evidence import cpu_lines
from envdoctor.reports import parse_report
from envdoctor.reports.requirement_statements import stated_ranges

DATA = Path(__file__).parents[2] / "data"
MIB = 1 << 20


CASES = json.loads((DATA / "report_evidence.json").read_text())


@pytest.mark.parametrize("name", CASES["faulty"])
def test_lines_and_facts_give_the_cause(name: str) -> None:
    """The cause is one of the errors and warnings."""
    case = CASES["faulty"][name]
    assert case["cause"] in blamed_causes(case["text"])


@pytest.mark.parametrize("name", CASES["sound"])
def test_the_same_lines_blame_no_sound_report(name: str) -> None:
    """A selected CPU, a machine without GPU, and memory of a running server are no faults."""
    assert blamed_causes(CASES["sound"][name]) == set()


@pytest.mark.parametrize("row", cpu_lines(), ids=lambda row: row.sample[:30])
def test_a_line_of_the_cpu_matches_its_sample(row) -> None:
    """Each row has a sample of the program's output."""
    assert re.search(row.pattern, row.sample)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("lightning 1.3.8 goes with torch >=1.4, <=1.8", "<1.9,>=1.4"),
        ("2.4 supports torch 2.1 to 2.4", "<2.5,>=2.1"),
        ("it works only with transformers 4.40 or older", "<4.41"),
        ("needs numpy up to 1.26.4", "<=1.26.4"),
        ("it is tested with torch 2.4.0-2.5.1", "<=2.5.1,>=2.4.0"),
        ("will require torch >=2.9", ""),
        ("requires patience >=2", ""),
    ],
)
def test_ranges_of_sentences(text: str, allowed: str) -> None:
    """The range of a sentence; its last minor release includes the patch releases."""
    assert ",".join(sorted(str(part) for each in stated_ranges(text) for part in each.allowed)) == allowed


@pytest.mark.parametrize(
    ("text", "used", "total"),
    [
        ("- GPU: RTX 4060\n- in use: 7,916 MiB (~99%), free ~272 MiB", 7916, 8188),
        ("RTX 3090: 23.1/24.0 GB VRAM", int(23.1 * 1024), 24 * 1024),
        ("RTX 3090, 24564MiB total, 23988MiB used", 23988, 24564),
    ],
)
def test_memory_of_the_gpu(text: str, used: int, total: int) -> None:
    """Used and total memory, in each unit."""
    (gpu,) = parse_report(text).machine.gpus.value or ()
    assert gpu.memory_used.value is not None
    assert gpu.memory_total.value is not None
    assert (gpu.memory_used.value // MIB, gpu.memory_total.value // MIB) == (used, total)


@pytest.mark.parametrize(
    ("text", "gpu", "torch"),
    [
        ("GPU: RTX 5070Ti | torch: 2.6.0 | cuda: 12.4", "RTX 5070 Ti", "2.6.0"),
        ("My setup: i7, 32GB, 4070 Super, Windows 11, torch==2.2.0+cpu", "RTX 4070 Super", "2.2.0+cpu"),
        ("env: torch2.3.1+cu118, 3090 x2", "RTX 3090", "2.3.1+cu118"),
        ("HW: 2 x Tesla P40\nSW: torch-2.7.0+cu128", "Tesla P40", "2.7.0+cu128"),
        (
            "torch.__version__ = 2.6.0+cu126, device = NVIDIA GeForce RTX 5060 Ti",
            "GeForce RTX 5060 Ti",
            "2.6.0+cu126",
        ),
        ("Hardware: NVIDIA L40S, Software: PyTorch 2.6.0 with CUDA 12.4", "L40S", "2.6.0"),
        ("cards: 4 * V100-32G; torch 2.11.0+cu128", "V100 32G", "2.11.0+cu128"),
        ("Notebook with MX150, torch 2.8.0+cu129 gives an error", "MX150", "2.8.0+cu129"),
    ],
)
def test_gpu_and_torch_of_one_line(text: str, gpu: str, torch: str) -> None:
    """Short forms of names, and several fields on one line."""
    report = parse_report(text)
    build = report.stack.torch.value
    assert {each.name.value for each in report.machine.gpus.value or ()} == {gpu}
    assert build is not None
    assert build.version.value == torch


def test_the_facts_of_a_report_are_no_words_of_an_error() -> None:
    # Source: github.com/VisionXLab/mllm-mmrotate/issues/4, 2026-11-28.
    report = (
        "\u8dd1\u901a\u4e86\n\nOrderedDict([('sys.platform', 'linux'), ('Python', '3.10.12'), "
        "('CUDA available', True), ('GPU 0', 'NVIDIA GeForce RTX 4060 Ti'), "
        "('NVCC', 'Cuda compilation tools, release 12.1, V12.1.66'), "
        "('PyTorch', '2.3.0+cu121')])\n"
    )
    assert not blamed_causes(report)
