"""Composed reports next to the faults of real ones, in tests/data/report_causes.json: what is blamed, what is not."""

from __future__ import annotations

import json

from support.cases import each_case
from support.paths import DATA

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

ROWS = json.loads((DATA / "report_causes.json").read_text())


@each_case(("causes", "text"), [(row["causes"], row["text"]) for row in ROWS])
def test_causes_of_a_report(causes: str, text: str) -> None:
    """One of the causes between bars is an error or a warning; without causes there is none."""
    found = {each.cause for each in diagnose_report(parse_report(text)) if each.status in ("error", "warning")}
    assert found & set(causes.split("|")) if causes else not found
