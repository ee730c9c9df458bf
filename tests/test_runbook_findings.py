"""Each fault that a guide can hold is found, on its line and with its cause."""

from __future__ import annotations

from datetime import date

import pytest
from runbook_cases import FAULTS, Fault

from envdoctor.knowledge.causes import causes
from envdoctor.manifests import GUIDE_RULES, audit_runbook

TODAY = date(2026, 11, 21)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_found(fault: Fault) -> None:
    audit = audit_runbook(fault.text, name="guide.md", today=TODAY)
    found = [each for each in audit.findings if each.id == fault.id]
    assert found, [(each.line, each.id, each.message) for each in audit.findings]
    assert (fault.line, fault.cause) in [(each.line, each.cause) for each in found], [
        (e.line, e.cause, e.message) for e in found
    ]
    assert all(each.status in ("error", "warning") and each.message and each.fix and each.evidence for each in found)
    assert any(fault.said in each.message + each.fix for each in found), [(e.message, e.fix) for e in found]
    assert not [each for each in audit.findings if each.status == "crashed"]


def test_each_check_has_a_case_and_a_cause_of_the_table() -> None:
    assert {fault.id for fault in FAULTS} == set(GUIDE_RULES)
    assert {rule.cause for rule in GUIDE_RULES.values()} | {fault.cause for fault in FAULTS} <= set(causes())
    assert all(rule.check.__doc__ for rule in GUIDE_RULES.values())
