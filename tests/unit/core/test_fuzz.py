"""Mutated and random inputs for all parsers of user texts: no traceback, no crashed rule, bounded time.

ENVDOCTOR_FUZZ_EXAMPLES is the number of examples per test; 10,000 take some minutes.
"""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each_case
from support.fuzzing import TimeLimit, mutate
from support.paths import DATA

from envdoctor.core.errors import BadInput
from envdoctor.explain import explain
from envdoctor.machine.recorded import machine_json, machine_names, parse_machine, read_recorded
from envdoctor.profiles import choose, read_profiles
from envdoctor.reports import parse_report
from envdoctor.rules import evaluate

TEXTS = [
    case["text"] for path in sorted((DATA / "field_errors").glob("*.json")) for case in json.loads(path.read_text())
]
TEXTS += [path.read_text() for path in sorted((DATA / "reports").glob("*.txt"))]
MACHINES = [machine_json(read_recorded(name)) for name in machine_names()]


def unusual_texts(texts: list[str]) -> st.SearchStrategy[str]:
    real = st.builds(mutate, st.sampled_from(texts), st.integers(0, 1 << 32))
    return st.one_of(real, real, real, st.text(max_size=500))


@given(unusual_texts(TEXTS))
def test_explain_accepts_any_text(text: str) -> None:
    with TimeLimit():
        explained = explain(io.BytesIO(text.encode("utf-8", "surrogatepass")))
    assert all(0 < cause.confidence < 1 for cause in explained.causes)
    assert not [cause.fix for cause in explained.causes if "{" in cause.fix and "}" in cause.fix.partition("{")[2]]


@given(st.binary(max_size=2000))
def test_explain_accepts_any_bytes(data: bytes) -> None:
    with TimeLimit():
        explain(io.BytesIO(data))


@given(unusual_texts(TEXTS))
def test_reports_accept_any_text_and_no_rule_crashes(text: str) -> None:
    with TimeLimit():
        report = parse_report(text)
        findings = evaluate(report.machine, report.stack)
    assert not [finding.message for finding in findings if finding.status == "crashed"]


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
    assert len(MACHINES) >= 3


def test_unknown_field_of_a_record_is_reported() -> None:
    text = machine_json(read_recorded("cpu-2core")).replace('"kind"', '"kynd"', 1)
    with pytest.raises(BadInput, match="kynd") as refused:
        parse_machine(text, where="machine.json")
    assert "'kind'" in refused.value.expected


@each_case("depth", [50, 100_000])
def test_deep_json_is_rejected(depth: int) -> None:
    with pytest.raises(BadInput):
        parse_machine("[" * depth, where="machine.json")
