"""The symptom tables: every row matches its sample, no pattern hangs, real error texts get their cause."""

from __future__ import annotations

import io
import json
import re
import string
import time
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.explained import explain_text
from support.paths import DATA
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of
from support.report_stack import make_machine, torch_stack

from envdoctor.explain.scan import scan
from envdoctor.explain.searches import WINDOW_LENGTH
from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.symptoms import Signal, Symptom, required_literals, symptom_table

TABLE = symptom_table()
FIELD_ERRORS = sorted((DATA / "field_errors").glob("*.json"))
ROWS: list[Symptom | Signal] = [*TABLE.symptoms, *TABLE.signals.values()]
# For one search in half a window, hundreds of times the usual time; eight times as much for a window even if the time
# is cubic.
TEXT_LENGTH, MAX_SECONDS = WINDOW_LENGTH // 2, 0.25


def row_name(row: Symptom | Signal) -> str:
    return row.id if isinstance(row, Symptom) else f"signal {row.name}"


def test_ids_are_unique() -> None:
    names = [row_name(row) for row in ROWS]
    assert len(names) == len(set(names))


@each_case("symptom", TABLE.symptoms, ids=row_name)
def test_symptom_matches_its_sample_and_uses_known_names(symptom: Symptom) -> None:
    found = scan(io.BytesIO(symptom.sample.encode()), TABLE)
    assert symptom.id in found.symptoms
    assert {symptom.cause, *symptom.outranks} <= set(causes())
    assert {*symptom.when, *symptom.unless} <= set(TABLE.signals)
    assert 0 < symptom.weight < 100


@each_case("row", ROWS, ids=row_name)
def test_pattern_has_literals_and_never_hangs(row: Symptom | Signal) -> None:
    literals = required_literals(row.pattern)
    assert literals, "an alternative has no literal of 4 or more characters"
    pattern = re.compile(row.pattern)
    sample = row.sample if isinstance(row, Symptom) else literals[0]
    worst_cases = [
        *(literal * (TEXT_LENGTH // len(literal)) for literal in literals),
        *(literals[0] + character * TEXT_LENGTH for character in "a0 ._-/'\"()[]<>=:,;\\"),
        *(
            (literals[0] + " " + unit) * (TEXT_LENGTH // (len(literals[0]) + 1 + len(unit)))
            for unit in ("1.0", "a b ", "/x.so", "'='")
        ),
        *(
            sample[: len(sample) // 2] + filler * (TEXT_LENGTH // len(filler))
            for filler in ("a.b-", string.digits, "= ", "\\x")
        ),
        (sample[:-1] * (TEXT_LENGTH // max(len(sample), 1) + 1))[:TEXT_LENGTH],
    ]
    for text in worst_cases:
        start = time.process_time()
        pattern.search(text)
        assert time.process_time() - start < MAX_SECONDS, text[:80]


def field_errors(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", FIELD_ERRORS, ids=lambda path: path.stem)
def test_real_error_texts_are_explained_as_recorded(path: Path) -> None:
    """The first cause is the right one in 97 % of the texts, and ordinary logs have none."""
    cases = field_errors(path)
    found: dict[str, Any] = {}
    wrong = []
    for case in cases:
        explanation = explain_text(case["text"])
        ranked = explanation.causes
        if case["cause"] and causes()[case["cause"]].program_error:
            assert not [each.cause for each in ranked if each.confidence >= 0.4], case["id"]
            ranked = explanation.program_errors
        first = [[each.lines, each.findings, commands_of(each), each.check] for each in ranked[:1]]
        others = [[each.cause, each.score, each.line_numbers, each.against] for each in ranked]
        found[str(case["id"])] = [first, others, explanation.facts]
        if not case["cause"]:
            every = (*ranked, *explanation.program_errors)
            assert not [each.cause for each in every if each.confidence > 0.5], case["id"]
        elif not ranked or ranked[0].cause not in {case["cause"], *case.get("also", ())}:
            wrong.append((case["id"], case["cause"], [each.cause for each in ranked[:3]]))
    assert len(wrong) <= 0.03 * sum(bool(case["cause"]) for case in cases), wrong
    assert_as_recorded(f"explain-{path.stem}", found)


@each_case(
    ("pattern", "literals"),
    [
        (r"libcudart\.so\.(\d+): cannot open|no libcudart", ("libcudart.so.", "no libcudart")),
        (r"undefined symbol: _ZNK?(3c10|2at)", ("undefined symbol: _ZN",)),
        (r"found version \(?(?P<found>\d+)\)", ("found version ",)),
        (r"CUDA[ _]HOME environment", ("HOME environment",)),
        (r"Value 'sm_\w+' is not{1,2} defined", ("Value 'sm_",)),
        (r"a|long enough", ()),
        (r"(?:only|in) groups", (" groups",)),
    ],
)
def test_literals_of_a_pattern(pattern: str, literals: tuple[str, ...]) -> None:
    assert required_literals(pattern) == literals


def test_explanations_of_samples_are_as_recorded() -> None:
    """One sample of each cause, on a machine and in an environment whose versions the messages contain."""
    machine = make_machine(["NVIDIA H100 80GB HBM3"], driver="570.133.20", nvcc="12.8.93")
    packages = {"vllm": "0.10.2", "transformers": "4.57.1", "trl": "0.23.1", "flash-attn": "2.8.3"}
    stack = torch_stack("2.8.0+cu128", packages=packages)
    found = {}
    for symptom in {symptom.cause: symptom for symptom in TABLE.symptoms}.values():
        explanation = explain_text(symptom.sample, machine, stack)
        found[symptom.id] = [
            [each.score, each.line_numbers, each.against, each.fix, commands_of(each), each.check]
            for each in (*explanation.causes, *explanation.program_errors)
            if each.cause == symptom.cause
        ]
    assert_as_recorded("explain-samples", found)
