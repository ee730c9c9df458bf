"""Results for people. One renderer a kind of result; adding a command adds a row to RENDERERS or ELSEWHERE."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from envdoctor.core import results
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Choice, Condition, Finding, Verification
from envdoctor.core.results import Answer
from envdoctor.output.console import err, out, table

MARKS = {"ok": "✓", "info": "i", "warning": "!", "error": "✗", "unknown": "?", "crashed": "✗", "skipped": "-"}
OUTCOMES = {"passed": "ok", "unavailable": "info"}
GIB = 1 << 30


def render(answer: Answer) -> None:
    """Print a result on stdout. A text that says no_wrap is to be pasted: neither broken nor cut."""
    for part in _renderer(type(answer.data).__name__)(answer.data):
        out().print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))


def render_error(error: EnvdoctorError) -> None:
    """Print an error on stderr: what was seen, what was expected, what to run next."""
    console = err()
    console.print(Text.assemble(("error: ", "error"), error.message))
    if error.expected:
        console.print(Text.assemble(("expected: ", "dim"), error.expected))
    if error.hint:
        console.print(Text.assemble(("hint: ", "info"), error.hint), soft_wrap=True)  # to be pasted: not broken
    if error.causes:
        from envdoctor.output.diagnosis import likely

        for part in likely(error.causes):
            console.print(part)


def _checked(data: results.Checked) -> list[RenderableType]:
    from envdoctor.output import diagnosis
    from envdoctor.output.machine import machine_tables

    seen = f"recognised in the report: {', '.join(data.report)}" if data.report else ""
    return [
        *([Text(seen, style="dim")] if seen else []),
        *machine_tables(data.machine),
        *diagnosis.stack_lines(data),
        *_findings(data.findings, data.rules),
        *_choice(data.choice),
    ]


def _findings(findings: tuple[Finding, ...], rules: int) -> list[RenderableType]:
    title = Text.assemble(("\nFindings", "title"), f"  {len(findings)} from {rules} rules")
    if not findings:
        return [title, Text.assemble(("  ✓ ", "ok"), "nothing wrong found")]
    told = [finding for finding in findings if finding.status != "unknown"]
    return [title, *(part for finding in told for part in _finding(finding)), *_unknown(findings)]


def findings_lines(findings: tuple[Finding, ...]) -> list[RenderableType]:
    """Findings as `check` shows them, for other results that have some."""
    return (
        [Text("\nFindings", style="title"), *(part for finding in findings for part in _finding(finding))]
        if findings
        else []
    )


def _unknown(findings: tuple[Finding, ...]) -> list[RenderableType]:
    """Rules that could not judge, by the fact that they lacked."""
    lacking: dict[str, list[str]] = {}
    for finding in findings:
        if finding.status == "unknown":
            lacking.setdefault(f"{finding.evidence[0].fact} ({finding.evidence[0].value})", []).append(finding.id)
    return [
        Text.assemble(("  ? ", "unknown"), f"{fact} could not be read, so nothing is said by ", ", ".join(rules))
        for fact, rules in lacking.items()
    ]


def _finding(finding: Finding) -> list[RenderableType]:
    mark = MARKS.get(finding.status, "?")
    head = Text.assemble(
        (f"  {mark} ", finding.status),
        (f"{finding.id} ", "title"),
        finding.message,
        (f"  [{finding.cause}]", "dim"),
    )
    if finding.status == "info":
        return [head]  # true and harmless: `envdoctor explain ID` has the rest
    parts: list[RenderableType] = [head]
    if finding.fix:
        parts.append(_indent(Text(finding.fix)))
    parts.extend(_indent(Text(f"$ {command}", style="command")) for command in finding.commands)
    parts.extend(_indent(Text.assemble((f"{e.fact}: {e.value} ({e.source})", "dim"))) for e in finding.evidence)
    if finding.url:
        parts.append(_indent(Text(finding.url, style="dim")))
    return parts


def _indent(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 4), expand=False)


def _choice(choice: Choice) -> list[RenderableType]:
    from envdoctor.profiles import violations

    parts: list[RenderableType] = [Text("\nProfile", style="title")]
    if choice.profile:
        parts.append(Text.assemble(("  ✓ ", "ok"), (choice.profile, "title"), f"  {choice.reason}"))
        parts.append(_indent(Text(f"$ envdoctor install --profile {choice.profile}", style="command")))
    else:
        parts.append(Text.assemble(("  ✗ ", "error"), choice.reason))
    for candidate in choice.candidates:
        if candidate.profile == choice.profile:
            continue
        reasons = "; ".join(_condition(c) for c in violations(candidate)) or "fits, but another one is preferred"
        parts.append(Text.assemble(("  - ", "dim"), candidate.profile, (f"  {reasons}", "dim")))
    return parts


def _condition(condition: Condition) -> str:
    return f"{condition.name}: {condition.observed}, needed {condition.expected}"


def _planned(data: results.Planned) -> list[RenderableType]:
    notes = [] if data.fits else [Text(f"# does not fit this machine: {'; '.join(data.violated)}")]
    # soft_wrap would be lost in a Group: these lines are for pasting and must not be broken
    for line in (f"# {data.profile} into {data.venv}", *(str(note) for note in notes), *data.commands):
        out().print(Text(line), soft_wrap=True)
    return []


def _verification(data: Verification) -> list[RenderableType]:
    rows = table("probe", "outcome", "s", "what it showed")
    for result in data.results:
        style = OUTCOMES.get(result.outcome, "error")
        rows.add_row(result.probe, Text(result.outcome, style=style), f"{result.seconds:.1f}", escape(result.message))
    verdict = (
        Text.assemble(("✓ ", "ok"), "verified") if data.passed else Text.assemble(("✗ ", "error"), "not verified")
    )
    outcomes = {result.probe: result.outcome for result in data.results}
    lacking = [f"{name} {outcomes.get(name, 'not run')}" for name in data.required if outcomes.get(name) != "passed"]
    if lacking:
        verdict.append(f": required, but {', '.join(lacking)}")
    where = f"{data.python}, " + (f"driver {data.driver}, {', '.join(data.gpus)}" if data.driver else "no GPU")
    outputs = [
        _indent(Text(f"{r.probe}: {r.output.strip()[-600:]}", style="dim"))
        for r in data.results
        if r.output and r.outcome not in OUTCOMES
    ]
    outputs += [_indent(Text(f"{r.probe}: {r.cause}")) for r in data.results if r.cause]
    safe = (
        [Text(f"attention that passed, best first: {', '.join(data.attention)}", style="dim")]
        if data.attention
        else []
    )
    return [rows, *outputs, *safe, Text.assemble(verdict, f"  {where}")]


def _quickstarted(data: results.Quickstarted) -> list[RenderableType]:
    laps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in data.seconds.items())
    from envdoctor.output.environments import installed
    from envdoctor.output.trained import trained

    passed = sum(result.outcome == "passed" for result in data.verification.results)
    return [
        *_choice(data.checked.choice)[:2],
        *installed(data.installed)[:3],
        Text.assemble(("✓ ", "ok"), ("verified", "title"), f"  {passed} probes passed"),
        *trained(data.trained),
        Text(f"{laps}; {sum(data.seconds.values()):.0f} s in all"),
        Text("$ envdoctor train --list", style="command"),
    ]


RENDERERS: dict[str, Callable[[Any], list[RenderableType]]] = {
    "Checked": _checked,
    "Planned": _planned,
    "Verification": _verification,
    "Quickstarted": _quickstarted,
}
# Renderers in modules of their own, which are imported when there is something to render.
ELSEWHERE = {
    "RecipeList": ("trained", "recipes"),
    "SettingList": ("trained", "settings"),
    "Trained": ("trained", "trained"),
    "Explanation": ("diagnosis", "explained"),
    "RuleList": ("diagnosis", "rule_list"),
    "Documentation": ("diagnosis", "documented"),
    "Schema": ("diagnosis", "schema"),
    "Written": ("diagnosis", "written"),
    "Text": ("diagnosis", "text"),
    "FactsChecked": ("locks", "facts_checked"),
    "Report": ("diagnosis", "report"),
    "Entries": ("profiles", "entries"),
    "ProfileShown": ("profiles", "profile_shown"),
    "ResolvedAll": ("profiles", "resolved_all"),
    "LockedAll": ("locks", "locked_all"),
    "Exported": ("locks", "exported"),
    "Matrix": ("locks", "matrix"),
    "Audited": ("audit", "audited"),
    "InstallResult": ("environments", "installed"),
    "ArchsReport": ("archs", "archs_report"),
    "AbiReport": ("abi", "abi_report"),
    "LoadTest": ("load_test", "load_test"),
    "BenchmarkReport": ("bench", "bench"),
    "Fetched": ("fetched", "fetched"),
    "Environments": ("environments", "environments"),
    "RolledBack": ("environments", "rolled_back"),
    "Removed": ("environments", "removed"),
    "Paths": ("environments", "paths"),
    "MemoryPlan": ("planning", "memory_plan"),
    "Watched": ("runs", "watched"),
    "Plotted": ("runs", "plotted"),
    "Packed": ("runs", "packed"),
    "PackChecked": ("runs", "pack_checked"),
    "FleetChecked": ("fleet", "fleet_checked"),
    "Collective": ("fleet", "collective"),
}


def _renderer(name: str) -> Callable[[Any], list[RenderableType]]:
    """What renders a kind of result, by the record's name."""

    if name in RENDERERS:
        return RENDERERS[name]
    module, function = ELSEWHERE[name]
    found: Callable[[Any], list[RenderableType]] = getattr(import_module(f"envdoctor.output.{module}"), function)
    return found


__all__ = ["Group", "findings_lines", "render", "render_error"]
