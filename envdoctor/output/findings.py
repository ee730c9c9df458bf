"""Human output of findings, shared by `check`, `audit` and `fleet check`."""

from __future__ import annotations

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Remedy, command_lines
from envdoctor.output.text import Part, Text, indent

MARKS = {"info": "i", "warning": "!", "error": "✗", "unknown": "?", "crashed": "✗"}


def findings_lines(findings: tuple[Finding, ...]) -> list[Part]:
    """A title and the findings; empty without findings."""
    if not findings:
        return []
    return [Text("\nFindings", style="title"), *(part for finding in findings for part in finding_lines(finding))]


def remedy_lines(remedies: tuple[Remedy, ...], width: int = 4) -> list[Part]:
    """The commands of remedies, with `or:` between alternatives."""
    styles = {True: "command", False: "dim"}
    return [
        indent(Text(line, style=styles[line.startswith("$")], wrap=False), width) for line in command_lines(remedies)
    ]


def finding_lines(finding: Finding, *, details: bool = True) -> list[Part]:
    """A finding with its fix and commands, and with `details` its evidence; a harmless one is one line."""
    line = f"line {finding.line}: " if finding.line else ""
    head = Text.assemble(
        (f"  {MARKS.get(finding.status, '?')} ", finding.status), (f"{finding.id} ", "title"),
        line, finding.message, (f"  [{finding.cause}]", "dim"),
    )  # fmt: skip
    if finding.status == "info":
        return [head]
    parts: list[Part] = [head]
    if finding.fix:
        parts.append(indent(Text(finding.fix)))
    parts += remedy_lines(finding.remedies)
    if not details:
        return parts
    parts += [indent(Text(f"{item.fact}: {item.value} ({item.source})", style="dim")) for item in finding.evidence]
    if finding.url:
        parts.append(indent(Text(finding.url, style="dim")))
    return parts
