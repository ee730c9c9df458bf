"""Each guide rule detects its faults, on the right line and with the right cause."""

from __future__ import annotations

from datetime import date

from support.cases import each_case
from support.guide_cases import FAULTS, Fault
from support.recorded_results import assert_as_recorded

from envdoctor.knowledge.causes import causes
from envdoctor.manifests import GUIDE_RULES, audit_guide

TODAY = date(2026, 11, 21)


@each_case("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_detected(fault: Fault) -> None:
    findings = audit_guide(fault.text, name="guide.md", today=TODAY).findings
    detected = [finding for finding in findings if finding.id == fault.id]
    assert detected, [(finding.line, finding.id, finding.message) for finding in findings]
    assert (fault.line, fault.cause) in [(finding.line, finding.cause) for finding in detected], detected
    for finding in detected:
        assert finding.status in ("error", "warning")
        assert finding.message
        assert finding.fix
        assert finding.evidence
    assert any(fault.expected_text in finding.message + finding.fix for finding in detected), detected
    assert not [finding for finding in findings if finding.status == "crashed"]


def test_each_rule_has_a_fault_and_a_known_cause() -> None:
    assert {fault.id for fault in FAULTS} == set(GUIDE_RULES)
    assert {rule.cause for rule in GUIDE_RULES.values()} | {fault.cause for fault in FAULTS} <= set(causes())
    assert all(rule.check.__doc__ for rule in GUIDE_RULES.values())


def test_audits_are_as_recorded() -> None:
    found = {}
    for fault in FAULTS:
        audit = audit_guide(fault.text, name="guide.md", today=TODAY)
        steps = [[step.line, step.command] for step in audit.steps]
        found[fault.name] = [steps, audit.requirements, [each for each in audit.findings if each.id == fault.id]]
    assert_as_recorded("guide-faults", found)
