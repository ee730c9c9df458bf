"""Human-readable output of `envdoctor audit`: findings by line, and corrected requirements."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.commands.audit import AuditsResult
from envdoctor.commands.audit_file import AuditResult
from envdoctor.commands.audit_fix import FixedSet
from envdoctor.manifests.dropped_packages import dropped_lines
from envdoctor.output.findings import finding_lines
from envdoctor.output.text import Part, Text, count, indent

_MIN_ALIKE = 4  # files without findings that are listed in one line


def render_audit(result: AuditResult) -> list[Part]:
    """Findings in the order of the lines, then the corrected requirements and the written files."""
    further = f", others: see {', '.join(result.elsewhere)}" if result.elsewhere else ""
    verdict = f"{coverage_text(result)}, {count(len(result.findings), 'finding')}{further}"
    parts: list[Part] = [Text.assemble((result.name, "title"), f"  {result.kind}: {verdict}")]
    unread = result.coverage.unread
    if not result.findings:
        parts.append(Text.assemble(_mark(result, "  "), f"no problems found{' in what was read' if unread else ''}"))
    parts += [Text.assemble(("  ! ", "warning"), f"not read: {each}") for each in unread]
    parts += [indent(Text(result.resolution))] if result.resolution else []
    parts += [indent(Text(trial_text(result)))] if result.trials else []
    for finding in result.findings:
        parts += finding_lines(finding)
    for solved in result.sets:
        parts += _render_set(solved)
    if result.requirements and not result.sets:
        parts.append(Text("\nProposed requirements (--fix solves them with uv and writes them)", style="title"))
        parts += [indent(Text(requirement)) for requirement in result.requirements]
    parts += [Text.assemble(("✓ ", "ok"), f"wrote {path}") for path in result.written]
    parts += [Text.assemble(("! ", "warning"), note) for note in result.notes]
    return [*parts, *(Text(f"$ {command}", style="command", wrap=False) for command in result.commands)]


def _mark(result: AuditResult, indentation: str = "") -> tuple[str, str]:
    """The mark of an audit without findings of its own. What was not read may have problems."""
    if result.elsewhere:
        return f"{indentation}- ", ""
    return (f"{indentation}? ", "unknown") if result.coverage.unread else (f"{indentation}✓ ", "ok")


def coverage_text(result: AuditResult) -> str:
    """How much was read and can be judged: `174 packages and 3 steps read, 60 in the tables`."""
    coverage = result.coverage
    parts = [count(coverage.packages, "package")] if coverage.packages or not coverage.steps else []
    parts += [count(coverage.steps, "step")] if coverage.steps else []
    judged = f", {coverage.judged} in the tables" if coverage.judged < coverage.packages else ""
    origin = f" ({coverage.origin})" if coverage.origin else ""
    return f"{' and '.join(parts)} read{origin}{judged}"


def trial_text(result: AuditResult) -> str:
    """What a trial did: `trial: installed 43 packages in 2 environments, imported 12 modules`."""
    tried = [each for each in result.trials if each.tried]
    if not tried:
        return "trial: no environment was tried"
    others = len(result.trials) - len(tried)
    where = count(len(tried), "environment")
    packages = count(sum(each.installed for each in tried), "package")
    modules = count(sum(each.imported for each in tried), "module")
    targets = "; ".join(dict.fromkeys(each.target for each in tried))
    rest = f"; {count(others, 'environment')} not tried" if others else ""
    return f"trial: installed {packages} in {where} ({targets}), imported {modules}{rest}"


def _render_set(solved: FixedSet) -> list[Part]:
    """A solved set with its target, or the reason for which there is none."""
    title = f"{solved.branch}: " if solved.branch else ""
    if solved.state != "solved":
        return [Text(f"\n{title}No set for {solved.target}", style="title"), indent(Text(solved.note))]
    untried = ", not tried," if solved.trial else ""
    verdict = f"solved by uv{untried} for {solved.target} ({solved.packages} packages)"
    parts: list[Part] = [Text(f"\n{title}Requirements {verdict}", style="title")]
    if solved.trial:
        parts.append(indent(Text(f"`{solved.trial}` installs them and imports the packages", wrap=False)))
    parts += [indent(Text(requirement)) for requirement in solved.requirements]
    parts += [indent(Text(f"without {line}")) for line in dropped_lines(solved.dropped)]
    if solved.image:
        parts.append(indent(Text(f"The packages of {solved.image} remain.")))
    return [*parts, indent(Text.assemble(("! ", "warning"), solved.note))] if solved.note else parts


def render_audits(result: AuditsResult) -> list[Part]:
    """The files with findings in their order, then the differences between files, then the others in a line each."""
    parts: list[Part] = []
    for audit in result.audits:
        if audit.findings:
            parts += [*render_audit(audit), Text("")]
    for finding in result.differences:
        parts += finding_lines(finding)
    parts += [Text("")] if result.differences else []
    for group in _alike([each for each in result.audits if not each.findings]):
        parts += _render_sound(group)
    parts += [Text.assemble(("✗ ", "error"), f"not read: {each.file}: {each.reason}") for each in result.unreadable]
    if len(result.skipped) >= _MIN_ALIKE:
        title = f"{len(result.skipped)} files skipped"
        text = f"  nothing in them can be judged: {', '.join(result.skipped)}"
        parts.append(Text.assemble("- ", (title, "title"), text))
    else:
        parts += [
            Text.assemble("- ", (name, "title"), "  skipped: nothing in it can be judged") for name in result.skipped
        ]
    return [*parts, *(Text(f"- not searched: {each}") for each in result.omitted)]


def _alike(audits: Sequence[AuditResult]) -> list[list[AuditResult]]:
    """The results without findings: many that differ in their names and counts only are one group."""
    groups: dict[tuple[object, ...], list[AuditResult]] = {}
    for audit in audits:
        key = (audit.kind, audit.coverage.unread) if not audit.elsewhere and not audit.trials else (audit.name,)
        groups.setdefault(key, []).append(audit)
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) >= _MIN_ALIKE else [[each] for each in group])
    ]


def _render_sound(group: Sequence[AuditResult]) -> list[Part]:
    """A line for a file without findings, or for a group of them, and what was not read."""
    audit = group[0]
    unread, others = audit.coverage.unread, ", ".join(audit.elsewhere)
    found = f"no problems but those of {others}" if others else "no problems found"
    found += " in that" if unread else ""
    if len(group) > 1:
        steps = count(sum(each.coverage.steps for each in group), "step")
        title = f"{len(group)} files"
        text = f"  {audit.kind}: {steps} read, {found}: {', '.join(each.name for each in group)}"
    else:
        title, text = audit.name, f"  {audit.kind}: {coverage_text(audit)}, {found}"
    parts: list[Part] = [Text.assemble(_mark(audit), (title, "title"), text)]
    parts += [indent(Text(trial_text(audit)))] if audit.trials else []
    return parts + [Text.assemble(("  ! ", "warning"), f"not read: {each}") for each in unread]
