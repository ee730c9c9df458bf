"""Lines of a log explain no failure if the program completed its work after them."""

from __future__ import annotations

import pytest
from support.explained import explain_text

from envdoctor.explain.calibration import UNDECIDED
from envdoctor.explain.outcome import works_at_end

RANGE = (
    "/opt/v/lib/python3.12/site-packages/trl/__init__.py:22: UserWarning: TRL currently supports vLLM "
    "versions from 0.16.0 to 0.23.0. You have version 0.26.0 installed. We recommend another one.\n"
)
MODULE = (
    "ERROR 11-26 16:27:08 [plugins.py:40] ImportError: cannot import name 'Sampler' from 'vllm.v1.sample' "
    "(/opt/v/lib/python3.12/site-packages/vllm/v1/sample/__init__.py)\n"
)
TRAINED = "{'loss': '0.71', 'epoch': '0.5'}\n{'train_runtime': '12.3', 'train_loss': '0.71', 'epoch': '1'}\n"
SERVED = 'INFO:     10.0.0.7:51532 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
LEAK = "[rank0]:[W1126 16:26:32] Warning: WARNING: destroy_process_group() was not called before program exit\n"
CRASH = "Traceback (most recent call last):\n  File 'train.py', line 9, in <module>\nValueError: no prompt\n"
RANK = "ValueError: device_id cuda:1 is out of range. Please use a device index less than the number of accelerators"
NO_DRIVER = "cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used."
REQUEST = "[RequestOutput(request_id=0, outputs=[CompletionOutput(text='', finish_reason=error)])]\n"
FALLBACK = "FlashAttention 3 requires Hopper GPUs or newer, falling back to FlashAttention 2.\n"


def test_a_fall_back_explains_no_error_of_other_lines() -> None:
    def confidence(text: str) -> dict[str, float]:
        return {each.cause: each.confidence for each in explain_text(text).causes}

    assert confidence(FALLBACK)["gpu-unsupported-by-library"] > UNDECIDED
    assert confidence(FALLBACK + CRASH).get("gpu-unsupported-by-library", 0.0) < UNDECIDED


@pytest.mark.parametrize(
    ("text", "cause", "is_named"),
    [
        (RANGE, "trl-vllm-range", True),
        (RANGE + TRAINED, "trl-vllm-range", False),
        (RANGE + TRAINED + LEAK, "trl-vllm-range", False),
        (RANGE + TRAINED + CRASH, "trl-vllm-range", True),
        (MODULE, "dependency-pin-violated", True),
        (MODULE + SERVED, "dependency-pin-violated", False),
        (MODULE + SERVED + "The replies are empty, why?\n", "dependency-pin-violated", True),
        (MODULE + REQUEST, "dependency-pin-violated", True),
        (RANK, "cuda-device-selection", True),
        (NO_DRIVER, "cudart-missing", False),
    ],
)
def test_the_log_of_a_run_that_works_has_no_cause(text: str, cause: str, is_named: bool) -> None:
    causes = explain_text(text).causes
    assert (cause in {each.cause for each in causes if each.confidence >= 0.5}) is is_named, causes


def test_a_text_without_completed_work_shows_no_outcome() -> None:
    assert not works_at_end(RANGE)
    assert works_at_end(TRAINED)
    assert not works_at_end(f"GPU available: False, used: False\n{TRAINED}")


def test_a_name_that_came_back_leaves_the_direction_open() -> None:
    line = "ImportError: cannot import name 'ALLOWED_LAYER_TYPES' from 'transformers.configuration_utils'"
    (first, *_) = explain_text(line).causes
    assert first.undecided
    assert first.confidence < 0.5
    assert "5.4.0 has again" in first.find_out[0].shows


@pytest.mark.parametrize(
    ("text", "causes"),
    [
        ("nvidia-driver-daemonset-hk5zt   0/1     CrashLoopBackOff   9 (2m11s ago)   31m", ["driver-not-loaded"]),
        ("nfs: server 10.0.0.9 not responding, still trying", ["file-system-fault"]),
        ("nvidia-driver-daemonset-hk5zt   1/1     Running            0               31m", []),
        ("nfs: server 10.0.0.9 not responding, still trying\nnfs: server 10.0.0.9 OK", []),
    ],
)
def test_a_line_that_reports_success_is_not_similar_to_an_error(text: str, causes: list[str]) -> None:
    found = explain_text(text).causes
    assert [each.cause for each in found if each.confidence >= UNDECIDED or not causes][:1] == causes
