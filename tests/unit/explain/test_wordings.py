"""Wordings of errors, as the programs print them, in tests/data/error_wordings.json: the first cause of each."""

from __future__ import annotations

import json

from support.cases import each_case
from support.explained import best_cause, explain_text
from support.paths import DATA

from envdoctor.explain.calibration import UNDECIDED

WORDINGS = json.loads((DATA / "error_wordings.json").read_text())

DECIDED = [(row["cause"], row["text"]) for row in (*WORDINGS["decided"], *WORDINGS["next to them"])]


@each_case(("causes", "text"), DECIDED)
def test_first_cause_of_a_wording(causes: str, text: str) -> None:
    """Causes after a bar are right as well: the text names no GPU, which tells them apart."""
    first = best_cause(text)
    assert first
    assert first.cause in causes.split("|")
    assert first.fix


def test_each_missing_class_has_five_wordings() -> None:
    causes = [row["cause"] for row in WORDINGS["decided"]]
    assert {cause: causes.count(cause) for cause in causes if causes.count(cause) < 5} == {}
    assert len(set(causes)) >= 16


@each_case("text", WORDINGS["undecided"])
def test_a_text_that_does_not_decide_gets_a_low_percentage(text: str) -> None:
    found = explain_text(text)
    assert [cause.cause for cause in found.causes if cause.confidence >= UNDECIDED] == []


@each_case(
    "lines",
    [
        [
            "Tried to allocate 512.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
            "site-packages/transformers/models/x.py",
        ],
        ["Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.65 GiB"],
        ["Tried to allocate 120.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 12.50 GiB is free."],
    ],
)
def test_a_tensor_of_a_library_or_one_that_fits_is_a_lack_of_memory(lines: list[str]) -> None:
    first, *_ = explain_text("torch.OutOfMemoryError: CUDA out of memory. " + "\n".join(lines)).causes
    assert (first.cause, first.confidence >= UNDECIDED) == ("gpu-oom", True)


@each_case("text", WORDINGS["of the program"])
def test_an_error_of_the_program_blames_no_environment(text: str) -> None:
    assert [cause.cause for cause in explain_text(text).causes if cause.confidence >= UNDECIDED] == []


@each_case(
    "line",
    [
        (
            "INFO [gpu_worker.py:479] Initial free memory 139.29 GiB, reserved 0.25 GiB memory for KV "
            "Cache as specified by kv_cache_memory_bytes config and skipped memory profiling. If OOM'ed, check the "
            "difference of initial free memory between the current run and the previous run."
        ),
        (
            "WARNING [system_utils.py:299] Found ulimit of 20000 and failed to automatically increase with "
            "error current limit exceeds maximum limit. This can cause fd limit errors like "
            "`OSError: [Errno 24] Too many open files`."
        ),
    ],
)
def test_a_line_of_a_working_server_has_no_cause(line: str) -> None:
    assert [cause.cause for cause in explain_text(line).causes if cause.confidence >= UNDECIDED] == []


def test_a_message_on_the_last_two_lines_needs_no_final_line_break() -> None:
    text = "The detected CUDA version (12.1) mismatches the\nversion that was used to compile PyTorch (11.3)."
    found, expected = explain_text(text), explain_text(f"{text}\n")
    assert [(cause.cause, cause.score) for cause in found.causes] == [
        (cause.cause, cause.score) for cause in expected.causes
    ]
    assert found.causes[0].cause == "nvcc-torch-mismatch"
