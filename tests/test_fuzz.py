"""Mutated and random inputs to what reads strangers' texts: no traceback, no crashed rule, bounded time.

ENVDOCTOR_FUZZ_EXAMPLES sets how many of each; 10,000 take some minutes.
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
SECONDS = 2.0  # for one input of some KiB, on a busy machine
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


def mutated(text: str, seed: int) -> str:
    """The text with pieces cut, doubled, shuffled, swapped and strange characters put in."""
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


def strange(texts: list[str]) -> st.SearchStrategy[str]:
    real = st.builds(mutated, st.sampled_from(texts), st.integers(0, 1 << 32))
    return st.one_of(real, real, real, st.text(max_size=500))


class Watch:
    """Fails where one input takes too long."""

    def __enter__(self) -> None:
        self.began = time.process_time()

    def __exit__(self, *_: object) -> None:
        assert time.process_time() - self.began < SECONDS


@fuzz
@given(strange(TEXTS))
def test_explain_takes_any_text(text: str) -> None:
    with Watch():
        explained = explain(io.BytesIO(text.encode("utf-8", "surrogatepass")))
    assert all(0 < cause.confidence < 1 for cause in explained.causes)
    assert not [cause.fix for cause in explained.causes if "{" in cause.fix and "}" in cause.fix.partition("{")[2]]


@fuzz
@given(st.binary(max_size=2000))
def test_explain_takes_any_bytes(data: bytes) -> None:
    with Watch():
        explain(io.BytesIO(data))


@fuzz
@given(strange(TEXTS))
def test_reports_take_any_text_and_no_rule_crashes(text: str) -> None:
    with Watch():
        report = parse_report(text)
        findings = evaluate(report.machine, report.stack)
    assert not [finding.message for finding in findings if finding.status == "crashed"]


@fuzz
@given(strange(MACHINES))
def test_machine_files_are_read_or_refused_and_no_rule_crashes(text: str) -> None:
    with Watch():
        try:
            machine = parse_machine(text, where="machine.json")
        except BadInput:
            return  # anything else is a failure
        findings = evaluate(machine)
        choose(machine, read_profiles())
    assert not [finding.message for finding in findings if finding.status == "crashed"]


def test_there_is_something_to_mutate() -> None:
    assert len(TEXTS) > 100
    assert len(MACHINES) > 5


def test_an_unknown_field_inside_a_table_of_records_is_named() -> None:
    text = machine_json(read_recorded("cpu-2core")).replace('"kind"', '"kynd"', 1)
    with pytest.raises(BadInput, match="kynd") as refused:
        parse_machine(text, where="machine.json")
    assert "'kind'" in refused.value.expected


@pytest.mark.parametrize("depth", [50, 100_000])
def test_deep_json_is_refused(depth: int) -> None:
    with pytest.raises(BadInput):
        parse_machine("[" * depth, where="machine.json")
