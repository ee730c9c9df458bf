"""Composed output of schedulers, containers, package managers and libraries, in tests/data/composed_reports.json."""

from __future__ import annotations

import json
from typing import Any

from support.cases import each_case
from support.paths import DATA
from support.report_facts import fact
from support.report_samples import versions

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

REPORTS: dict[str, dict[str, Any]] = {
    row["name"]: row for row in json.loads((DATA / "composed_reports.json").read_text())
}


@each_case("name", REPORTS)
def test_facts_and_causes_of_a_composed_report(name: str) -> None:
    expected = REPORTS[name]
    report = parse_report("\n".join(expected["text"]))
    assert {path: fact(report, path) for path in expected["facts"]} == expected["facts"]
    assert [gpu.name.value or "" for gpu in report.machine.gpus.value or ()] == expected["gpus"]
    assert expected["packages"].items() <= versions(report).items()
    if expected["causes"] is not None:
        found = {each.cause for each in diagnose_report(report) if each.status in ("error", "warning")}
        assert found == set(expected["causes"])
