"""Human-readable output of `envdoctor audit`: findings by line, and corrected requirements."""

from __future__ import annotations

from envdoctor.commands.audit import AuditResult, AuditsResult
from envdoctor.output.findings import finding_lines
from envdoctor.output.text import Part, Text, count, indent


def render_audit(result: AuditResult) -> list[Part]:
    """Findings in the order of the lines, then the corrected requirements and the written files."""
    steps = f"{count(len(result.steps), 'step')}, " if result.steps else ""
    parts: list[Part] = [
        Text.assemble((result.name, "title"), f"  {result.kind}: {steps}{count(len(result.findings), 'finding')}")
    ]
    if not result.findings:
        parts.append(Text.assemble(("  ✓ ", "ok"), "no problems found"))
    for finding in result.findings:
        parts += finding_lines(finding)
    if result.requirements:
        parts.append(Text("\nRequirements that work together", style="title"))
        parts += [indent(Text(requirement)) for requirement in result.requirements]
    return [*parts, *(Text.assemble(("✓ ", "ok"), f"wrote {path}") for path in result.written)]


def render_audits(result: AuditsResult) -> list[Part]:
    """The files with findings in their order, then the others in a line each."""
    clean = [audit for audit in result.audits if not audit.findings]
    parts = [part for audit in result.audits if audit.findings for part in (*render_audit(audit), Text(""))]
    for audit in clean:
        parts += [Text.assemble(("✓ ", "ok"), (audit.name, "title"), f"  {audit.kind}: no problems found")]
    parts += [Text.assemble("- ", (name, "title"), "  skipped: it installs nothing") for name in result.skipped]
    return parts
