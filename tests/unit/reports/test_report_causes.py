"""Composed reports next to the faults of real ones, in tests/data/report_causes.json: what is blamed, what is not."""

from __future__ import annotations

import json

from support.cases import each_case
from support.paths import DATA
from support.report_samples import blamed_causes

ROWS = json.loads((DATA / "report_causes.json").read_text())


@each_case(("causes", "text"), [(row["causes"], row["text"]) for row in ROWS])
def test_causes_of_a_report(causes: str, text: str) -> None:
    """One of the causes between bars is an error or a warning; without causes there is none."""
    found = blamed_causes(text)
    assert found & set(causes.split("|")) if causes else not found
