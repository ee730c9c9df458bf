"""Mutated and random inputs for all parsers of user texts: no traceback, no crashed rule, bounded time.

ENVDOCTOR_FUZZ_EXAMPLES is the number of examples per test; 10,000 take some minutes.
"""

from __future__ import annotations

import io
import json
import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.core.errors import BadInput
from envdoctor.explain import explain
from envdoctor.machine.recorded import machine_json, machine_names, parse_machine, read_recorded
from envdoctor.profiles import choose, read_profiles
from envdoctor.reports import parse_report
from envdoctor.rules import evaluate

EXAMPLES = int(os.environ.get("ENVDOCTOR_FUZZ_EXAMPLES", "300"))
MAX_SECONDS = 2.0  # for one input of some KiB, on a busy machine
DATA = Path(__file__).parent / "data"
TEXTS = [
    case["text"] for path in sorted((DATA / "field_errors").glob("*.json")) for case in json.loads(path.read_text())
]
TEXTS += [path.read_text() for path in sorted((DATA / "reports").glob("*.txt"))]
MACHINES = [machine_json(read_recorded(name)) for name in machine_names()]
PIECES = [
    "\n",
    "\r\n",
    "\0",
    "\x1b[31m",
    "==",
    ": ",
    "|",
    "9" * 40,
    "é",
    "\ud7ff",
    "{}",
    "()",
    "-1",
    "NaN",
    "1e999",
    "[pip3] ",
    "GPU 0: ",
    "\t",
    "%s",
]

fuzz = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def mutate(text: str, seed: int) -> str:
    """The text with parts removed, repeated, shuffled or replaced, and unusual characters inserted."""
    source = random.Random(seed)
    for _ in range(source.randint(1, 6)):
        start, end = sorted(source.randrange(len(text) + 1) for _ in range(2))
        kind = source.randrange(6)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:end] + text[start : start + 2000] + text[end:]
        elif kind == 2:
            lines = text.split("\n")
            source.shuffle(lines)
            text = "\n".join(lines)
        elif kind == 3:
            text = text[:start] + source.choice(PIECES) * source.randint(1, 50) + text[start:]
        elif kind == 4:
            text = text[:start] + chr(source.randrange(32, 0x2FF)) + text[start + 1 :]
        else:
            text = text.replace(source.choice("0123456789.:=/_ -"), source.choice(PIECES), source.randint(1, 20))
    return text


def unusual_texts(texts: list[str]) -> st.SearchStrategy[str]:
    real = st.builds(mutate, st.sampled_from(texts), st.integers(0, 1 << 32))
    return st.one_of(real, real, real, st.text(max_size=500))


class TimeLimit:
    """Fails if one input takes too long."""

    def __enter__(self) -> None:
        self.start = time.process_time()

    def __exit__(self, *_: object) -> None:
        assert time.process_time() - self.start < MAX_SECONDS


@fuzz
@given(unusual_texts(TEXTS))
def test_explain_accepts_any_text(text: str) -> None:
    with TimeLimit():
        explained = explain(io.BytesIO(text.encode("utf-8", "surrogatepass")))
    assert all(0 < cause.confidence < 1 for cause in explained.causes)
    assert not [cause.fix for cause in explained.causes if "{" in cause.fix and "}" in cause.fix.partition("{")[2]]


@fuzz
@given(st.binary(max_size=2000))
def test_explain_accepts_any_bytes(data: bytes) -> None:
    with TimeLimit():
        explain(io.BytesIO(data))


@fuzz
@given(unusual_texts(TEXTS))
def test_reports_accept_any_text_and_no_rule_crashes(text: str) -> None:
    with TimeLimit():
        report = parse_report(text)
        findings = evaluate(report.machine, report.stack)
    assert not [finding.message for finding in findings if finding.status == "crashed"]


@fuzz
@given(unusual_texts(MACHINES))
def test_machine_files_are_accepted_or_rejected_and_no_rule_crashes(text: str) -> None:
    with TimeLimit():
        try:
            machine = parse_machine(text, where="machine.json")
        except BadInput:
            return  # any other error is a failure
        findings = evaluate(machine)
        choose(machine, read_profiles())
    assert not [finding.message for finding in findings if finding.status == "crashed"]


def test_samples_exist() -> None:
    assert len(TEXTS) > 100
    assert len(MACHINES) > 5


def test_unknown_field_of_a_record_is_reported() -> None:
    text = machine_json(read_recorded("cpu-2core")).replace('"kind"', '"kynd"', 1)
    with pytest.raises(BadInput, match="kynd") as refused:
        parse_machine(text, where="machine.json")
    assert "'kind'" in refused.value.expected


@pytest.mark.parametrize("depth", [50, 100_000])
def test_deep_json_is_rejected(depth: int) -> None:
    with pytest.raises(BadInput):
        parse_machine("[" * depth, where="machine.json")
