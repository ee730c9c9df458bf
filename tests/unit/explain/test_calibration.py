"""Tests of the percentage of a cause, and of the questions for texts that do not decide."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from support.explained import explain_text
from support.report_stack import torch_stack

from envdoctor.explain.calibration import UNDECIDED, calibration, confidence_of
from envdoctor.knowledge.causes import Question, causes
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.output.diagnosis import render_explanation
from envdoctor.output.text import Indented, Text

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/campaigns"))
import calibration as campaign  # noqa: E402


def questions() -> list[Question]:
    rows = [*symptom_table().symptoms, *causes().values()]
    return list(dict.fromkeys(question for row in rows for question in row.find_out))


def test_the_percentage_is_the_measured_share() -> None:
    assert campaign.expected_share(17, 18) == pytest.approx(0.9)
    for each in calibration().bin:
        assert each.confidence == campaign.printed_share(each.rank, each.right, each.causes)


def test_a_percentage_is_rounded_down() -> None:
    assert campaign.printed_share("further", 31, 79) == 0.39  # 32 of 81 are 39.5 %
    assert campaign.printed_share("similar", 6, 6) == 0.45  # too few texts for more
    assert campaign.printed_share("first", 29, 98) == 0.3  # 30 of 100


def test_the_percentage_rises_with_the_score() -> None:
    scores = [number / 100 for number in range(100)]
    for rank in get_args(campaign.Rank):
        found = [confidence_of(score, rank) for score in scores]
        assert found == sorted(found)
    assert max(confidence_of(score, rank) for score in scores for rank in ("undecided", "further")) < UNDECIDED


def test_bins_with_falling_shares_are_joined() -> None:
    found: list[tuple[campaign.Rank, float, bool]] = [("first", 0.4, number < 9) for number in range(10)]
    found += [("first", 0.6, number < 1) for number in range(2)]
    (joined,) = campaign.bins_of("first", (0.3, 0.5), found)
    assert (joined.minimum, joined.causes, joined.right) == (0.3, 12, 10)


def test_the_documented_table_is_the_measured_one() -> None:
    assert campaign.markdown(calibration()) in campaign.PAGE.read_text(encoding="utf-8")
    assert campaign.TABLE.read_text(encoding="utf-8") == campaign.toml(calibration())


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: invalid device ordinal",
        "ValueError: Your setup doesn't support bf16/gpu.",
        "ValueError: Bfloat16 is only supported on GPUs with compute capab",
        "ImportError: undefined symbol: cuModuleGetFunction",
        "_C.so: undefined symbol: _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv",
        "TypeError: Accelerator.__init__() got an unexpected keyword argument 'dispatch_batches'",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, Timeout(ms)=9)",
        "RuntimeError: No CUDA GPUs are available",
    ],
)
def test_an_undecidable_text_has_questions_and_no_likely_cause(text: str) -> None:
    explanation = explain_text(text)
    assert explanation.causes
    assert all(cause.confidence < UNDECIDED for cause in explanation.causes)
    assert explanation.causes[0].find_out
    shown = [part.part for part in render_explanation(explanation) if isinstance(part, Indented)]
    lines = [part.plain for part in shown if isinstance(part, Text)]
    assert {f"$ {question.command}" for question in explanation.causes[0].find_out} <= set(lines)


def test_a_text_that_decides_has_no_questions() -> None:
    text = (
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
        "Your Tesla T4 GPU has compute capability 7.5."
    )
    (first, *_) = explain_text(text).causes
    assert first.confidence > 0.9
    assert not first.find_out


def test_facts_decide_a_text_that_does_not() -> None:
    error = "TypeError: Accelerator.__init__() got an unexpected keyword argument 'dispatch_batches'"
    stack = torch_stack("2.8.0+cu128", packages={"accelerate": "1.2.0"})
    (first, *_) = explain_text(error, stack=stack).causes
    assert first.cause == "library-too-new"
    assert first.confidence > UNDECIDED


def test_a_finding_on_a_pasted_report_does_not_explain_another_error() -> None:
    """An old xgrammar, and an error of the program that no message of the tables is similar to."""
    text = (
        "AssertionError: H must be 128, but got 16\n\nPython: 3.10.12\nCUDA available: True\nGPU 0: NVIDIA H100\n"
        "PyTorch: 2.6.0+cu124\nsglang: 0.4.6.post1\nxgrammar: 0.1.11\ntransformers: 4.51.1\n"
    )
    explanation = explain_text(text)
    assert [cause.cause for cause in explanation.causes] == ["dependency-pin-violated"]
    assert explanation.causes[0].findings
    assert explanation.causes[0].confidence < 0.4


def test_commands_of_questions_are_valid() -> None:
    commands = [question.command for question in questions()]
    script = "\n".join(commands)
    checked = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, check=False)
    assert not checked.returncode, checked.stderr
    assert "{" not in script
    for command in commands:
        name, *arguments = shlex.split(command, comments=False)
        if name == "python" and arguments[0] == "-c":
            compile(arguments[1], command, "exec")


def test_an_undecided_symptom_has_questions() -> None:
    undecided = [symptom for symptom in symptom_table().symptoms if symptom.undecided]
    assert undecided
    assert all(symptom.find_out or causes()[symptom.cause].find_out for symptom in undecided)
