"""Renderer of `envdoctor check`: facts, findings, and the choice of a profile."""

from __future__ import annotations

from envdoctor.commands.check import CheckResult
from envdoctor.core.records import Choice, Finding
from envdoctor.output.diagnosis import stack_lines
from envdoctor.output.findings import finding_lines
from envdoctor.output.machine import machine_tables
from envdoctor.output.text import Part, Text, indent
from envdoctor.profiles import violation_texts


def render_check(data: CheckResult) -> list[Part]:
    """Facts of machine and environment, findings, and the profiles."""
    report = [Text(f"recognized in the report: {', '.join(data.report)}", style="dim")] if data.report else []
    return [
        *report,
        *machine_tables(data.machine),
        *stack_lines(data),
        *_findings(data.findings, data.rules),
        *choice_lines(data.choice),
    ]


def _findings(findings: tuple[Finding, ...], rules: int) -> list[Part]:
    title = Text.assemble(("\nFindings", "title"), f"  {len(findings)} from {rules} rules")
    if not findings:
        return [title, Text.assemble(("  ✓ ", "ok"), "no problems found")]
    known = [finding for finding in findings if finding.status != "unknown"]
    return [title, *(part for finding in known for part in finding_lines(finding)), *_unknown(findings)]


def _unknown(findings: tuple[Finding, ...]) -> list[Part]:
    """Rules that could not be evaluated, grouped by the unreadable fact."""
    rules_by_fact: dict[str, list[str]] = {}
    for finding in findings:
        if finding.status == "unknown":
            fact = f"{finding.evidence[0].fact} ({finding.evidence[0].value})"
            rules_by_fact.setdefault(fact, []).append(finding.id)
    return [
        Text.assemble(("  ? ", "unknown"), f"{fact} could not be read; not evaluated: ", ", ".join(rules))
        for fact, rules in rules_by_fact.items()
    ]


def choice_lines(choice: Choice) -> list[Part]:
    """The chosen profile, then the others with the reasons against them."""
    parts: list[Part] = [Text("\nProfile", style="title")]
    if choice.profile:
        parts.append(Text.assemble(("  ✓ ", "ok"), (choice.profile, "title"), f"  {choice.reason}"))
        parts.append(indent(Text(f"$ envdoctor install {choice.profile}", style="command")))
    else:
        parts.append(Text.assemble(("  ✗ ", "error"), choice.reason))
    for candidate in choice.candidates:
        if candidate.profile == choice.profile:
            continue
        reasons = "; ".join(violation_texts(candidate)) or "fits, but another profile is preferred"
        parts.append(Text.assemble(("  - ", "dim"), candidate.profile, (f"  {reasons}", "dim")))
    return parts
