"""Human-readable output of `envdoctor audit`: findings by line, and corrected requirements."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from envdoctor.commands.audit import AuditResult
from envdoctor.core.records import Finding
from envdoctor.output.console import indent

STATUS_MARKS = {"info": "i", "warning": "!", "error": "✗", "unknown": "?", "crashed": "✗"}


def render_audit(result: AuditResult) -> list[RenderableType]:
    """Findings in the order of the lines, then the corrected requirements and the written files."""
    steps = f"{len(result.steps)} steps, " if result.steps else ""
    parts: list[RenderableType] = [
        Text.assemble((result.name, "title"), f"  {result.kind}: {steps}{len(result.findings)} findings")
    ]
    if not result.findings:
        parts.append(Text.assemble(("  ✓ ", "ok"), "no problems found"))
    for finding in result.findings:
        parts += _render_finding(finding)
    if result.requirements:
        parts.append(Text("\nRequirements that work together", style="title"))
        parts += [indent(Text(requirement)) for requirement in result.requirements]
    return [*parts, *(Text.assemble(("✓ ", "ok"), f"wrote {path}") for path in result.written)]


def _render_finding(finding: Finding) -> list[RenderableType]:
    line = f"line {finding.line}: " if finding.line else ""
    head = Text.assemble(
        (f"  {STATUS_MARKS.get(finding.status, '?')} ", finding.status),
        (f"{finding.id} ", "title"),
        line,
        finding.message,
        (f"  [{finding.cause}]", "dim"),
    )
    if finding.status == "info":
        return [head]
    parts: list[RenderableType] = [head]
    if finding.fix:
        parts.append(indent(Text(finding.fix)))
    parts += [indent(Text(f"$ {command}", style="command")) for command in finding.commands]
    parts += [indent(Text(f"{item.fact}: {item.value} ({item.source})", style="dim")) for item in finding.evidence]
    if finding.url:
        parts.append(indent(Text(finding.url, style="dim")))
    return parts
