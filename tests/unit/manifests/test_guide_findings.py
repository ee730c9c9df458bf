"""Each guide rule detects its faults, on the right line and with the right cause."""

from __future__ import annotations

from datetime import date

from support.cases import each_case
from support.guide_cases import FAULTS, Fault
from support.recorded_results import assert_as_recorded

from envdoctor.knowledge.causes import causes
from envdoctor.machine.recorded import read_recorded
from envdoctor.manifests import GUIDE_RULES, audit_guide
from envdoctor.manifests.guide import parse_guide
from envdoctor.manifests.interpreter import interpret_guide
from envdoctor.manifests.records import build_machine

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


def test_a_conflict_between_two_packages_without_a_requirement_of_the_guide() -> None:
    """vLLM 0.10.2 requires torch 2.8.0, and torchvision 0.24.0 requires torch 2.9.0; torch itself is not named."""
    audit = audit_guide("```bash\nuv pip install vllm==0.10.2 torchvision==0.24.0\n```\n", name="guide.md")
    conflict = next(finding for finding in audit.findings if finding.id == "RUN002")
    assert "vllm 0.10.2 requires torch==2.8.0 and torchvision 0.24.0 requires torch==2.9.0" in conflict.message
    assert (conflict.line, conflict.cause) == (2, "vllm-torch-mismatch")
    assert "Use torch==2.8.0, which vllm requires" in conflict.fix


def test_the_machine_of_a_guide_has_its_architecture() -> None:
    guide = parse_guide("```bash\npip install torch==2.8.0\n```\n", "guide.md")
    machine = build_machine(interpret_guide(guide, read_recorded("gh200-480gb"), "2026-11-23"))
    assert machine.system.architecture.value == "aarch64"
    assert machine.system.wsl.state == "absent"


@each_case(
    ("lines", "expected"),
    [
        (["a==1", "b>=2"], True), (["a==1"], False), (["a==1", "b"], False), (["a==1", "b==2", "c"], True),
        (["a==1", "b==2", "c", "d"], False), (["a==1", "b==2", "-r other.txt", "# comment"], True),
        (["a==1", "b==2", "CUDA_HOME=/usr/local/cuda true"], False), (["a==1", "b==2", "$ ls"], False),
        (["a==1", "b==2", "AB= c"], True), (["a==1", "b==2", "conda x"], False),
        (["a==1", "b==2", "(venv) $ ls"], False),
    ],
)  # fmt: skip
def test_a_block_of_requirements_has_versions_on_most_lines(lines: list[str], expected: bool) -> None:
    guide = parse_guide("```text\n" + "\n".join(lines) + "\n```\n", "guide.md")
    assert bool(interpret_guide(guide, None, "2026-11-23").installs) is expected
