"""Human-readable output of `envdoctor audit`: findings by line, and corrected requirements."""

from __future__ import annotations

from envdoctor.commands.audit import AuditResult, AuditsResult
from envdoctor.commands.audit_fix import FixedSet
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
    for solved in result.sets:
        parts += _render_set(solved)
    if result.requirements and not result.sets:
        parts.append(Text("\nProposed requirements (--fix solves them with uv and writes them)", style="title"))
        parts += [indent(Text(requirement)) for requirement in result.requirements]
    parts += [Text.assemble(("✓ ", "ok"), f"wrote {path}") for path in result.written]
    return [*parts, *(Text.assemble(("! ", "warning"), note) for note in result.notes)]


def _render_set(solved: FixedSet) -> list[Part]:
    """A solved set with its target, or the conflict because of which there is none."""
    title = f"{solved.branch}: " if solved.branch else ""
    if solved.state == "conflict":
        parts: list[Part] = [Text(f"\n{title}No set for {solved.target}", style="title"), indent(Text(solved.note))]
        return parts
    verdict = (
        f"solved by uv for {solved.target} ({solved.packages} packages)"
        if solved.state == "solved"
        else f"not solved for {solved.target}"
    )
    parts = [Text(f"\n{title}Requirements {verdict}", style="title")]
    parts += [indent(Text(requirement)) for requirement in solved.requirements]
    parts += [indent(Text(f"without {each.name}: {each.reason}")) for each in solved.dropped]
    if solved.options:
        parts.append(indent(Text(f"Install them with uv pip install {' '.join(solved.options)}")))
    if solved.image:
        parts.append(indent(Text(f"The packages of {solved.image} remain.")))
    return [*parts, indent(Text.assemble(("! ", "warning"), solved.note))] if solved.note else parts


def render_audits(result: AuditsResult) -> list[Part]:
    """The files with findings in their order, then the others in a line each."""
    clean = [audit for audit in result.audits if not audit.findings]
    parts = [part for audit in result.audits if audit.findings for part in (*render_audit(audit), Text(""))]
    for audit in clean:
        parts += [Text.assemble(("✓ ", "ok"), (audit.name, "title"), f"  {audit.kind}: no problems found")]
    parts += [Text.assemble("- ", (name, "title"), "  skipped: it installs nothing") for name in result.skipped]
    return parts
