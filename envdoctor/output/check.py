"""Renderer of `envdoctor check`: the verdict, the status lines, the problems, and the next command."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from envdoctor.commands.check import CheckResult
from envdoctor.commands.rule_filter import RuleFilter
from envdoctor.core.records import Finding, ReportCoverage
from envdoctor.core.wording import join_words
from envdoctor.output.check_status import status_lines, status_table
from envdoctor.output.diagnosis import stack_lines
from envdoctor.output.display import display
from envdoctor.output.findings import finding_lines
from envdoctor.output.machine import machine_tables
from envdoctor.output.text import Part, Text, command, count, indent
from envdoctor.profiles import violation_texts
from envdoctor.profiles.choice import Choice

UNREAD_SHOWN = 5  # lines of a report; --verbose shows all
NOTES_SHOWN = 3  # findings of status info; --verbose shows all


def render_check(data: CheckResult) -> list[Part]:
    """The verdict first. Facts, evidence and rejected profiles follow with --verbose."""
    lines = status_lines(data)
    facts = [*machine_tables(data.machine), *stack_lines(data)] if display().verbose else []
    profiles = [] if data.report or not display().verbose else choice_lines(data.choice)
    shown = [status_table(lines), *_problems(data.findings), *_coverage_lines(data.coverage), *facts, *profiles]
    return [verdict(data), *shown, *_next(data)]


def verdict(data: CheckResult) -> Text:
    """The numbers of errors and warnings, and the scope of the check."""
    errors = sum(finding.status in ("error", "crashed") for finding in data.findings)
    warnings = sum(finding.status == "warning" for finding in data.findings)
    unknown = " and ".join(data.undecided)
    note = ""
    if errors or warnings:
        mark = ("✗ ", "error") if errors else ("! ", "warning")
        title = ", ".join(count(n, noun) for n, noun in ((errors, "error"), (warnings, "warning")) if n)
        note = f", {unknown} unknown" if unknown else ""
    elif data.coverage and data.coverage.other_gpu:
        mark, title = ("? ", "unknown"), "not judged"
        note = f": {data.coverage.other_gpu}, and the rules are for NVIDIA GPUs; no problems"
    elif data.coverage and data.coverage.contradictions:
        mark, title = ("? ", "unknown"), "not judged"
        facts = join_words([each.partition(":")[0] for each in data.coverage.contradictions])
        note = f": the report has two values of {facts}; no problems"
    elif data.coverage and not data.coverage.enough:
        mark, title = ("? ", "unknown"), "not enough to judge"
        missing = join_words([each.fact for each in data.coverage.missing])
        reason = f"{missing} unknown" if missing else "not all reports of the text were read"
        note = f": {reason}; no problems"
    elif unknown or data.evaluated == 0:
        mark, title = ("? ", "unknown"), "no verdict"
        partly = data.stack is not None and data.stack.distributions.value and unknown == "packages"
        note = f": {'not all packages were read' if partly else f'{unknown} unknown'}; no problems" if unknown else ""
    else:
        mark, title = ("✓ ", "ok"), "no problems"
    return Text.assemble(mark, (title, "title"), note, " in ", *_scope(data))


def _scope(data: CheckResult) -> list[str | tuple[str, str]]:
    """What was examined. Rules pass over the facts that a report lacks, so that their number would mislead."""
    if data.evaluated is None:
        return ["the report"]
    kind = "check" if data.rule_filter == RuleFilter((), ()) else "selected check"
    origin = f" ({data.machine.origin.partition(',')[0]})" if data.machine.name else ""
    environment = " and an environment" if data.stack else ""
    return [f"{count(data.evaluated, kind)} of {data.machine.name or 'this machine'}", (origin, "dim"), environment]


def _coverage_lines(coverage: ReportCoverage | None) -> list[Part]:
    """What a report lacks, with the commands that print it; lines that were not understood; reports left out."""
    if coverage is None:
        return []
    parts: list[Part] = [Text(f"  i {note}") for note in coverage.notes]
    parts += [Text(f"  ? two values of {contradiction}") for contradiction in coverage.contradictions]
    facts_by_command: dict[str, list[str]] = {}
    for missing in coverage.missing:
        facts_by_command.setdefault(missing.command, []).append(missing.fact)
    for line, facts in facts_by_command.items():
        parts += [Text(f"  ? {join_words(facts)}: not in the report; add the output of"), indent(command(line), 4)]
    shown = coverage.unread if display().verbose else coverage.unread[:UNREAD_SHOWN]
    if shown:
        parts.append(Text(f"  ? {count(len(coverage.unread), 'line')} not understood:", style="dim"))
        parts += [indent(Text(line, style="dim"), 4) for line in shown]
    return [*([Text()] if parts else []), *parts]


def _problems(findings: Sequence[Finding]) -> list[Part]:
    """Problems with remedies, then notes, then the number of rules that could not be evaluated."""
    problems = [finding for finding in findings if finding.status not in ("info", "unknown") or finding.fix]
    notes = [finding for finding in findings if finding.status == "info" and finding not in problems]
    shown = notes if display().verbose else notes[:NOTES_SHOWN]
    parts = [part for finding in [*problems, *shown] for part in finding_lines(finding, details=display().verbose)]
    if len(notes) > len(shown):
        parts.append(Text(f"  i {count(len(notes) - len(shown), 'more note')}: --verbose", style="dim"))
    skipped = [finding for finding in findings if finding.status == "unknown" and finding not in problems]
    return [*([Text()] if parts else []), *parts, *skipped_checks(skipped, details=display().verbose)]


def skipped_checks(findings: Sequence[Finding], *, details: bool) -> list[Part]:
    """Rules that could not be evaluated: their number by reason; with `details`, their ids by fact."""
    if not findings:
        return []
    reasons = Counter(finding.evidence[0].value for finding in findings)
    why = "; ".join(reasons) if len(reasons) == 1 else "; ".join(f"{reason} ({n})" for reason, n in reasons.items())
    parts: list[Part] = [Text(f"? {count(len(findings), 'check')} skipped: {why}", style="dim")]
    if details:
        rules_by_fact: dict[str, list[str]] = {}
        for finding in findings:
            rules_by_fact.setdefault(finding.evidence[0].fact, []).append(finding.id)
        parts += [indent(Text(f"{fact}: {', '.join(rules)}", style="dim")) for fact, rules in rules_by_fact.items()]
    return parts


def _next(data: CheckResult) -> list[Part]:
    if not data.next_command:
        return []
    elsewhere = data.machine.name and not re.search(r"^envdoctor (explain|fix) ", data.next_command)
    where = f", on {data.machine.name}" if elsewhere else ""
    return [Text(f"\nnext{where}:"), indent(command(data.next_command), 2)]


def choice_lines(choice: Choice) -> list[Part]:
    """The chosen profile, then the others with the reasons against them."""
    parts: list[Part] = [Text("\nProfile", style="title")]
    if choice.profile:
        parts.append(Text.assemble(("  ✓ ", "ok"), (choice.profile, "title"), f"  {choice.reason}"))
    else:
        parts.append(Text.assemble(("  ✗ ", "error"), choice.reason))
    for candidate in choice.candidates:
        if candidate.profile == choice.profile:
            continue
        reasons = "; ".join(violation_texts(candidate)) or "fits, but another profile is preferred"
        parts.append(Text.assemble(("  - ", "dim"), candidate.profile, (f"  {reasons}", "dim")))
    return parts
