"""An audit for people: what is wrong, line by line, and the pins to write instead."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from envdoctor.commands.audit import Audited
from envdoctor.core.records import Finding

MARKS = {"info": "i", "warning": "!", "error": "✗", "unknown": "?", "crashed": "✗"}


def audited(data: Audited) -> list[RenderableType]:
    """Findings in the order of the lines, then the corrected requirements."""
    read = f"{len(data.steps)} steps followed, " if data.steps else ""
    parts: list[RenderableType] = [
        Text.assemble((data.name, "title"), f"  {data.kind}: {read}{len(data.findings)} findings")
    ]
    if not data.findings:
        parts.append(Text.assemble(("  ✓ ", "ok"), "nothing wrong found"))
    for finding in data.findings:
        parts += _finding(finding)
    if data.requirements:
        parts += [
            Text("\nRequirements that work together", style="title"),
            *(_indent(Text(r)) for r in data.requirements),
        ]
    return [*parts, *(Text.assemble(("✓ ", "ok"), f"wrote {path}") for path in data.written)]


def _finding(finding: Finding) -> list[RenderableType]:
    where = f"line {finding.line}: " if finding.line else ""
    head = Text.assemble(
        (f"  {MARKS.get(finding.status, '?')} ", finding.status),
        (f"{finding.id} ", "title"),
        where,
        finding.message,
        (f"  [{finding.cause}]", "dim"),
    )
    if finding.status == "info":
        return [head]
    parts: list[RenderableType] = [head]
    if finding.fix:
        parts.append(_indent(Text(finding.fix)))
    parts += [_indent(Text(f"$ {command}", style="command")) for command in finding.commands]
    parts += [_indent(Text(f"{e.fact}: {e.value} ({e.source})", style="dim")) for e in finding.evidence]
    if finding.url:
        parts.append(_indent(Text(finding.url, style="dim")))
    return parts


def _indent(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 4), expand=False)
