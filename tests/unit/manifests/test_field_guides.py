"""Guides composed from facts of public ones: the faults that were listed before are found, and no false ones."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from typing import Any

import pytest
from support.cases import each_case
from support.paths import DATA

from envdoctor.core.records import Finding
from envdoctor.download.sources import read_sources
from envdoctor.locking.solve_set import solve_set
from envdoctor.manifests import GuideAudit, audit_guide

TODAY = date(2026, 11, 21)
FOLDER = DATA / "guides/field"
FIELD: dict[str, dict[str, Any]] = tomllib.loads((DATA / "guides/field.toml").read_text(encoding="utf-8"))


def audit(name: str) -> tuple[GuideAudit, list[str]]:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    return audit_guide(text, name=f"{name}.md", today=TODAY), text.split("\n")


def reports(finding: Finding, fault: dict[str, str], lines: list[str]) -> bool:
    line = fault["line"] if "|" in fault["line"] else re.escape(fault["line"])
    text = f"{finding.id} {finding.message} {finding.fix}"
    return bool(
        finding.line and re.search(line, lines[finding.line - 1]) and re.search(fault["finding"], text, re.IGNORECASE)
    )


def test_each_guide_has_a_list_of_faults() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(FIELD)


@each_case("name", sorted(FIELD))
def test_the_listed_faults_are_found_and_no_others(name: str) -> None:
    audited, lines = audit(name)
    entry = FIELD[name]
    missed = [
        fault["fault"]
        for fault in entry["faults"]
        if not any(reports(finding, fault, lines) for finding in audited.findings)
    ]
    assert missed == entry.get("missed", [])
    others = {
        f"{finding.line} {finding.id}"
        for finding in audited.findings
        if not any(reports(finding, fault, lines) for fault in entry["faults"])
    }
    assert others == set(entry.get("also", []))


@pytest.mark.network
@pytest.mark.parametrize("name", sorted(FIELD))
def test_each_proposed_set_has_a_solution(name: str) -> None:
    for corrected in audit(name)[0].sets:
        if corrected.requirements:
            solved = solve_set(corrected, read_sources())
            assert solved.state == "solved", solved.note
