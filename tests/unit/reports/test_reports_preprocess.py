"""Prefixes and markup around a report do not change its facts. Arbitrary text raises no exception."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each_case
from support.report_samples import ACCELERATE, PYTORCH, TABLE, TRANSFORMERS, TRL, VLLM

from envdoctor.reports import Report, parse_report
from envdoctor.reports.line_starts import strip_prefixes
from envdoctor.reports.preprocess import extract_command, has_line_numbers

SAMPLE = """\
PyTorch version: 2.8.0+cu128
CUDA used to build PyTorch: 12.8
Python version: 3.12.3 (main, Jan 17 2025, 18:03:48) [GCC 13.3.0] (64-bit runtime)
Is CUDA available: True
GPU models and configuration: GPU 0: NVIDIA H200
Nvidia driver version: 570.86.15
[pip3] numpy==2.2.6
"""


def main_facts(report: Report) -> tuple[object, ...]:
    torch, gpus = report.stack.torch.value, report.machine.gpus.value
    assert torch
    assert gpus
    return (
        torch.version.value,
        torch.cuda.value,
        report.stack.python_version.value,
        report.stack.cuda_available.value,
        [gpu.name.value for gpu in gpus],
        report.machine.driver.version.value,
        (report.stack.distributions.value or {})["numpy"].version,
    )


WRAPPINGS: dict[str, Callable[[int, str], str]] = {
    "quoted": lambda _, line: f"> {line}",
    "quoted twice": lambda _, line: f"> > {line}",
    "docker compose": lambda _, line: f"vllm-1  | {line}",
    "torchrun": lambda _, line: f"[rank0]: {line}",
    "vllm process": lambda _, line: f"(EngineCore_DP0 pid=1959996) {line}",
    "kubernetes": lambda _, line: f"2025-10-30T21:54:45.622419515Z {line}",
    "container runtime": lambda _, line: f"2025-10-30T21:54:45.622419515Z stdout F {line}",
    "hydra": lambda _, line: f"[2025-10-30 21:54:45,622][env.report][INFO] - {line}",
    "logging": lambda _, line: f"2025-10-30 21:54:45,628 - {line}",
    "tags": lambda _, line: f"[task 2025-07-01T05:06:30.004+00:00] [train] [stdout] {line}",
    "stacked": lambda _, line: f"vllm-1  | (APIServer pid=7) 2025-10-30T21:54:45.622Z {line}",
    "indented": lambda _, line: f"        {line}",
    "numbered": lambda number, line: f"{number + 1:6}\t{line}",
    "numbered with colons": lambda number, line: f"{number + 1}: {line}",
    "carriage returns": lambda _, line: f"{line}\r",
    "colours": lambda _, line: f"\x1b[32m{line}\x1b[0m",
    "bare colours": lambda _, line: f"[32m{line}[0m",
    "hard spaces": lambda _, line: line.replace(" ", "\xa0"),
    "wide colons": lambda _, line: line.replace(": ", "\uff1a", 1) if not line.startswith("GPU") else line,
    "list": lambda _, line: f"`{line}`" if "[" not in line else line,
    "html": lambda _, line: f"<p>{line}</p>",
    "padded colons": lambda _, line: line.replace(": ", "      : ", 1),
    "trimmed colons": lambda _, line: line.replace(": ", ":", 1),
}


@each_case("wrapping", WRAPPINGS)
def test_prefixes_and_markup_do_not_change_the_facts(wrapping: str) -> None:
    text = "\n".join(WRAPPINGS[wrapping](number, line) for number, line in enumerate(SAMPLE.splitlines()))
    assert main_facts(parse_report(text)) == main_facts(parse_report(SAMPLE))
    summary = "<summary>The output of <code>python collect_env.py</code></summary>"
    fenced = f"<details>\n{summary}\n\n```text\n{text}\n```\n\n</details>\n"
    assert main_facts(parse_report(fenced)) == main_facts(parse_report(SAMPLE))


@pytest.mark.parametrize("lines", [1_000, pytest.param(22_000, marks=pytest.mark.long)])
def test_report_inside_a_long_log_is_found(lines: int) -> None:
    log = "INFO 06-12 17:10:51 [core.py:244] Avg prompt throughput: 12.0 tokens/s, Running: 3 reqs\n" * lines
    report = parse_report(log + SAMPLE + log)
    assert main_facts(report) == main_facts(parse_report(SAMPLE))
    assert report.errors.count("\n") == 2 * lines - 1


def test_errors_contains_the_lines_outside_of_reports() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
        "RuntimeError: CUDA error: invalid device ordinal"
    )
    assert parse_report(f"{PYTORCH}\n{trace}\n{TABLE}\n{TRL}").errors == trace
    lines = PYTORCH.splitlines()
    inside = "\n".join([*lines[:8], *trace.splitlines(), *lines[8:]])
    assert parse_report(inside).errors == trace


@each_case(
    ("text", "expected"),
    [
        ("(EngineCore pid=7) [rank0]: Is CUDA available: True", "Is CUDA available: True"),
        ("[pip3] torch==2.4.0", "[pip3] torch==2.4.0"),
        ("|   0  NVIDIA H200   On  |", "|   0  NVIDIA H200   On  |"),
        (">>> import torch", ">>> import torch"),
        ("[  123.456789] NVRM: Xid", "NVRM: Xid"),
        ("Jun 12 17:10:51 node7 kernel: NVRM: Xid", "NVRM: Xid"),
    ],
)
def test_strip_prefixes(text: str, expected: str) -> None:
    assert strip_prefixes(text) == expected


@each_case(
    ("text", "command"),
    [
        ("$ nvidia-smi", "nvidia-smi"),
        ("(vllm) [user@node dir]$ python collect_env.py", "python collect_env.py"),
        ("root@0123456789ab:/workspace# pip list", "pip list"),
        (r"(venv) C:\automatic>pip show torch", "pip show torch"),
        ("In [3]: torch.__version__", "torch.__version__"),
        ("PyTorch version: 2.4.0", ""),
    ],
)
def test_extract_command(text: str, command: str) -> None:
    assert extract_command(text) == command


def test_first_of_two_reports_has_precedence() -> None:
    other = SAMPLE.replace("2.8.0+cu128", "2.1.0+cu118").replace("570.86.15", "535.54.03").replace("H200", "L4")
    assert main_facts(parse_report(SAMPLE + other)) == main_facts(parse_report(SAMPLE))


ALL_SAMPLES = "\n".join([PYTORCH, VLLM, TABLE, ACCELERATE, TRANSFORMERS, TRL])
SAMPLE_LINES = ALL_SAMPLES.splitlines(keepends=True)


def assert_parses(text: str) -> None:
    start_time = time.process_time()
    report = parse_report(text)
    assert time.process_time() - start_time < 20.0
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert len(report.errors) <= 2 * len(text)


@given(st.randoms(use_true_random=False), st.integers(1, 80), st.text(max_size=40))
def test_mutated_reports_raise_no_exception(rng: random.Random, count: int, insertion: str) -> None:
    """Lines are dropped, shuffled, cut, repeated, joined and split by unusual characters."""
    lines = rng.choices(SAMPLE_LINES, k=count)
    for _ in range(rng.randrange(12)):
        position = rng.randrange(len(lines))
        line = lines[position]
        cut = rng.randrange(len(line) + 1)
        lines[position] = rng.choice(
            (
                line[:cut],
                line[cut:],
                line[:cut] + insertion + line[cut:],
                line * 3,
                line.swapcase(),
                line.rstrip("\n"),
                line[:cut] + rng.choice("|:[]()<>=.\x00\x1b\u2028٣Ⅷ²") + line[cut:],
            )
        )
    assert_parses("".join(lines))


@given(st.integers(0, len(ALL_SAMPLES)), st.integers(0, len(ALL_SAMPLES)))
def test_truncated_reports_raise_no_exception(start: int, end: int) -> None:
    assert_parses(ALL_SAMPLES[min(start, end) : max(start, end)])


@given(st.one_of(st.text(), st.binary().map(lambda data: data.decode("utf-8", "replace"))))
def test_random_text_raises_no_exception(text: str) -> None:
    assert_parses(text)


@given(
    st.sampled_from([line.split(":")[0].split("  ")[0] for line in SAMPLE_LINES]),
    st.sampled_from([": ", " : ", "==", "  ", " ... "]),
    st.text(alphabet="0123456789.+-_abcuNV/ (){}[]:|,²٣", max_size=40),
)
def test_unusual_values_raise_no_exception(key: str, separator: str, value: str) -> None:
    assert_parses(f"{key}{separator}{value}\nCollecting environment information...\n")


# A pattern that takes linear time needs a tenth of the seconds. The longer text reveals smaller slowdowns.
REPEATED = pytest.mark.parametrize(
    ("length", "seconds"), [(8 << 10, 1.5), pytest.param(64 << 10, 10.0, marks=pytest.mark.long)]
)
ADVERSARIAL_UNITS = {
    "blank lines": "\n",
    "short lines": "a\n",
    "one line": "a",
    "spaces": " ",
    "keys": "a: 1\n",
    "quotes": "> ",
    "pipes": "| ",
    "rows": "|  0 | 1 | 2 |\n",
    "escapes": "\x1b[",
    "brackets": "[a",
    "parentheses": "(a pid=",
    "tags": "<div ",
    "entities": "&gt;",
    "dots": "torch version ...... 1.0\n",
    "gpus": "GPU 0: NVIDIA H200 ",
    "gpu lines": "GPU 0: NVIDIA H200\n",
    "pins": "torch==1.0\n",
    "columns": "torch   1.0\n",
    "pairs": "torch 2.1.0, ",
    "prompts": "root@aaaa ",
    "hosts": "a-b-c-@",
    "paths": "/lib/python3.12/site-packages/torch\n",
    "site": "/site-packages/",
    "capability": "with CUDA capability sm_120 NVIDIA A",
    "installed": "Successfully installed torch-2.1 ",
    "assignments": "A=b ",
    "compose": "aaaaaaaaaaaaaaaaaaa-1 | \n",
    "query": "name, uuid\n",
    "timestamps": "2025-10-30T21:54:45",
    "wide": "\uff1a\u2014\u2502 ",
    "show": "Name: torch\n",
    "detected": "detected CUDA version (11.8) ",
    "installed lists": "Successfully installed a-1\nb-2\n",
    "cut rows": "| a\n|\n",
    "devices": "Device: cuda:0 NVIDIA A\n",
    "escaped": "\\_\\*\\n",
    "line breaks": "\\n",
    "escaped twice": "&amp;amp;lt;",
    "labels": "node1: x\n",
    "diff": "+ a\n",
    "bold keys": "**a",
    "table keys": "| OS | a ",
    "leaders": "a .... 1\n",
    "open rows": "a | 1 | ",
    "topology": "GPU0 X ",
    "exports": "a=1=b ",
    "objects": '"a": {"b": 1},\n',
    "requirements": "Requirement already satisfied: a in\n(b\n",
}


@REPEATED
@each_case("name", ADVERSARIAL_UNITS)
def test_repeated_text_takes_seconds_at_most(name: str, length: int, seconds: float) -> None:
    """A pattern with backtracking would take minutes for these texts."""
    unit = ADVERSARIAL_UNITS[name]
    assert_is_fast((unit * (length // len(unit) + 1))[:length], seconds)


@REPEATED
@each_case(("first", "rest"), [("Requirement already satisfied: torch in\n", "(x\n"), ("numpy  1.2.3\n", "pypi\n")])
def test_a_row_has_few_rests(first: str, rest: str, length: int, seconds: float) -> None:
    assert_is_fast(first + rest * (length // len(rest)), seconds)


@REPEATED
def test_a_long_list_of_installed_packages_takes_seconds_at_most(length: int, seconds: float) -> None:
    assert_is_fast("Successfully installed a-1\n" + "b-2\n" * (length // 4), seconds)


@pytest.mark.parametrize(
    ("length", "seconds"), [(64 << 10, 2.0), pytest.param(2 << 20, 15.0, marks=pytest.mark.long)]
)
def test_megabytes_of_random_characters_or_reports_take_seconds(length: int, seconds: float) -> None:
    assert_is_fast("".join(random.Random(1).choices(string.printable, k=length)), seconds)
    assert_is_fast(ALL_SAMPLES * (length // len(ALL_SAMPLES)), seconds)


def assert_is_fast(text: str, seconds: float) -> None:
    start_time = time.process_time()
    parse_report(text)
    assert time.process_time() - start_time < seconds


@each_case(
    ("numbers", "expected"),
    [
        ([1, 2, 3, 4, 5], True), ([1, 2, 3, 4], False), ([1, 4, 7, 10, 13], True), ([1, 5, 9, 13, 17], False),
        ([1, 2, 3, 4, 5, 0, 0, 0, 0, 0], True), ([1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0], False),
        ([1, 2, 3, 4, 5, 1], True), ([1, 2, 3, 2, 3, 4], True), ([1, 2, 1, 2, 1, 2], False),
    ],
)  # fmt: skip
def test_line_numbers_rise_on_half_of_the_lines(numbers: list[int], expected: bool) -> None:
    lines = [f"{number}  text" if number else "text" for number in numbers]
    assert has_line_numbers(lines) is expected


def test_the_first_200_lines_decide_on_line_numbers() -> None:
    text = ["text"] * 100 + [f"{number} text" for number in range(1, 200)]
    assert has_line_numbers(text)
    assert not has_line_numbers(["text"] * 2 + text)


def test_lines_that_consist_of_their_start_are_read() -> None:
    for text in ("\\\n" * 60_000, "\\\n" * 9, "|\n" * 40, " \n" * 40, "> \n" * 40, "\\ x\n" * 30):
        assert not parse_report(text).kinds
