"""The commands of the findings on guides cure them, and cause no problem that the guide did not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date

from support.guide_cases import FAULTS, Fault

from envdoctor.core.records import Finding
from envdoctor.manifests import audit_guide

TODAY = date(2026, 11, 27)
# verl 0.4.1, the first release with the module, needs a setuptools of its time; a finding names it.
WITH_FURTHER_FINDING = {"merger of a later verl release"}


def findings(lines: Sequence[str]) -> tuple[Finding, ...]:
    return audit_guide("\n".join([*lines, ""]), name="guide.md", today=TODAY).findings


def corrected_guides(fault: Fault, finding: Finding, commands: Sequence[str]) -> Iterator[list[str]]:
    """The guide with the commands in place of the step of the finding, and after it."""
    lines = fault.text.splitlines()
    first = last = finding.line - 1
    while lines[last].endswith("\\"):
        last += 1
    while first and lines[first - 1].endswith("\\"):
        first -= 1
    replaced = re.search(r"in place of line (\d+)", finding.fix)
    before = [line for number, line in enumerate(lines[:first], 1) if not replaced or number != int(replaced[1])]
    yield [*before, *commands, *lines[last + 1 :]]
    yield [*lines[: last + 1], *commands, *lines[last + 1 :]]


def uncured(fault: Fault) -> Iterator[str]:
    """The commands with uv after which the guide has the finding again, or another error or warning."""
    found = findings(fault.text.splitlines())
    known = {each.id for each in found}
    finding = next(each for each in found if (each.id, each.line) == (fault.id, fault.line))
    for remedy in finding.remedies:
        if not any("uv pip" in command for command in remedy.commands):
            continue
        results = (findings(lines) for lines in corrected_guides(fault, finding, remedy.commands))
        if not any(
            fault.id not in {each.id for each in result}
            and {each.id for each in result if each.status in ("error", "warning")} <= known
            for result in results
        ):
            yield " && ".join(remedy.commands)


def test_the_command_for_each_fault_of_a_guide_cures_it() -> None:
    assert {fault.name for fault in FAULTS if any(uncured(fault))} == WITH_FURTHER_FINDING
