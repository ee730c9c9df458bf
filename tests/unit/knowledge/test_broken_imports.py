"""Imports that releases of another package do not support: the tables, and what they report for lists of packages."""

from __future__ import annotations

import pytest
from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.core.records import Finding
from envdoctor.knowledge.imports import Period, broken_imports, packages, rows_of
from envdoctor.knowledge.versions import version_key
from envdoctor.reports import parse_report

# Pairs that were installed and imported, and what the import printed as missing.
BREAKS = {
    "flask==2.2.2 werkzeug==3.0.1": "werkzeug.urls.url_quote",
    "flask==1.1.4 jinja2==3.1.2": "jinja2.Markup",
    "jinja2==2.11.3 markupsafe==2.1.3": "markupsafe.soft_unicode",
}


def findings_of(*pins: str) -> list[Finding]:
    rows = "\n".join(pin.replace("==", " ") for pin in pins)
    return diagnose_report(parse_report(f"Package Version\n------- -------\n{rows}\n"))


@each_case("package", packages())
def test_every_row_has_names_periods_and_importers(package: str) -> None:
    for row in rows_of(package):
        assert row.names
        assert row.absences
        assert row.importers
        for period in (*row.absences, *(each.releases for each in row.importers)):
            versions = [each for each in (period.before, period.first, period.last, period.after) if each]
            keys = [version_key(each) or ((0,), (0, 0), 0, 0) for each in versions]
            assert keys == sorted(keys), (row, period)
        assert all(each.before or each.after for each in row.absences)


def test_a_release_between_two_that_were_read_is_in_no_period() -> None:
    period = Period(before="1.0", first="1.2", last="1.4", after="1.6")
    assert [period.contains(each) for each in ("1.1", "1.2", "1.3", "1.4", "1.5")] == [False, True, True, True, False]
    assert Period("1.0", "1.2", "", "").contains("9.0")


def test_builds_and_prereleases_are_not_compared() -> None:
    assert list(broken_imports({"flask": "2.2.2", "werkzeug": "3.0.1"}))
    assert not list(broken_imports({"flask": "2.2.2", "werkzeug": "3.0.1+git1a2b3c4"}))
    assert not list(broken_imports({"flask": "2.2.2", "werkzeug": "3.1.0rc1"}))


@pytest.mark.parametrize("pins", BREAKS)
def test_a_broken_import_of_a_list_is_reported_with_its_name(pins: str) -> None:
    (found,) = [each for each in findings_of(*pins.split()) if each.id == "PKG049"]
    assert found.status == "error"
    assert BREAKS[pins] in found.message
    for name, _, version in (pin.partition("==") for pin in pins.split()):
        assert f"{name} {version}" in found.message
    assert found.remedies


def test_a_name_of_a_module_that_is_gone_does_not_come_back() -> None:
    """torch 1.9 removed the name, and torch 2.0 its module torch._six."""
    for torch, count in (("1.8.1", 0), ("1.9.0", 1), ("1.13.1", 1), ("2.0.1", 1), ("2.15.0", 1)):
        assert len(list(broken_imports({"torch": torch, "timm": "0.3.4"}))) == count, torch
    assert list(broken_imports({"torch": "2.15.0", "timm": "0.4.12"})) == []


def test_a_name_that_came_back_is_absent_only_between() -> None:
    """transformers 4.57 removed PytorchGELUTanh, and 5.0 has it again, for autoawq."""
    for transformers, count in (
        ("4.56.0", 0),
        ("4.57.1", 1),
        ("4.57.6", 1),
        ("5.0.0", 0),
        ("5.12.0", 0),
        ("5.24.0", 0),
    ):
        found = list(broken_imports({"transformers": transformers, "autoawq": "0.2.9"}))
        assert len(found) == count, transformers
