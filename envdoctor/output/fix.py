"""Human output of `fix`: the plan, or what was changed, and what is left."""

from __future__ import annotations

import shlex

from envdoctor.core.records import describe_notes
from envdoctor.core.shell_commands import shell_command
from envdoctor.install.fix_records import FixResult
from envdoctor.install.remedy_plan import FixedFinding
from envdoctor.output.findings import MARKS, finding_lines
from envdoctor.output.text import Part, Text, command, indent

CHANGES_SHOWN = 12
MARK = {
    "planned": ("• ", "info"), "fixed": ("✓ ", "ok"), "written": ("✓ ", "ok"), "failed": ("✗ ", "error"),
}  # fmt: skip


def render_fix(data: FixResult) -> list[Part]:
    """The verdict, each problem, the changed packages, and the next command."""
    done = [each for each in data.findings if each.state != "manual"]
    manual = [each for each in data.findings if each.state == "manual"]
    notes: list[Part] = [Text(f"  {note}", style="dim") for note in data.notes]
    if not done:
        return [_nothing(data, manual), *notes, *_manual(manual), *_files(data), *_others(data)]
    parts: list[Part] = [_title(data, len(done)), *(part for each in done for part in _finding(each, data.failure))]
    parts += [*_changes(data), *_files(data), *notes]
    if data.failure and data.log and not data.dry_run:
        parts.append(Text(f"  log: {data.log}", style="dim"))
    elif data.command:
        parts.append(Text(f"  {data.command.command} {data.command.ending}"))
    parts += _manual(manual)
    return [*parts, *_others(data), *_next(data)]


def _nothing(data: FixResult, manual: list[FixedFinding]) -> Text:
    if manual:
        return Text.assemble(("! ", "warning"), f"no remedy for {data.venv} that envdoctor can apply")
    if data.remaining:
        return Text.assemble(("! ", "warning"), f"none of these problems was found in {data.venv}")
    if data.unread:
        unread = describe_notes(data.unread)
        return Text.assemble(("? ", "unknown"), f"not all packages of {data.venv} were read: {unread}")
    return Text.assemble(("✓ ", "ok"), f"nothing to fix in {data.venv}")


def _title(data: FixResult, count: int) -> Text:
    problems = f"{count} problem" if count == 1 else f"{count} problems"
    if data.dry_run:
        return Text.assemble(("plan", "title"), f" for {problems} of {data.venv}")
    if data.applied:
        failing = ", ".join(data.failing_probes)
        mark = ("! ", "warning") if failing else ("✓ ", "ok")
        but = f", but a probe does not pass: {failing}" if failing else ""
        return Text.assemble(mark, (data.target, "title"), f"  {problems} fixed in {data.seconds:.1f} s{but}")
    if not data.failure:
        return Text.assemble(("✓ ", "ok"), f"a new shell sets the variables for {problems} of {data.venv}")
    return Text.assemble(("✗ ", "error"), (data.venv, "title"), f"  not changed: {data.failure}")


def _finding(each: FixedFinding, failure: str) -> list[Part]:
    parts: list[Part] = [Text.assemble("  ", MARK[each.state], (f"{each.finding} ", "title"), each.problem)]
    parts += [indent(command(line)) for line in (*each.commands, *each.variables)]
    if each.reason and each.reason != failure:
        parts.append(indent(Text(each.reason, style="warning")))
    if each.manual:
        parts.append(indent(Text("for you:", style="dim")))
        parts += [indent(command(line)) for line in each.manual]
    return parts


def _changes(data: FixResult) -> list[Part]:
    """The changed packages, and where the repaired environment is."""
    parts: list[Part] = []
    if data.dry_run and len([each for each in data.findings if each.state == "planned" and each.commands]) > 1:
        parts += [Text("  together:"), *(indent(command(line)) for line in data.commands)]
    if data.dry_run and data.failure:
        subject = "these remedies cannot be applied together" if len(data.findings) > 1 else "it cannot be applied"
        subject = "the changes of the other packages are not known" if data.unreachable else subject
        parts.append(Text(f"  {subject}: {data.failure}", style="error"))
    if data.changes and (data.applied or data.dry_run):
        parts.append(Text("  changed packages:" if data.applied else "  packages that would change:"))
        parts += [indent(Text(change)) for change in data.changes[:CHANGES_SHOWN]]
        more = len(data.changes) - CHANGES_SHOWN
        parts += [indent(Text(f"and {more} more", style="dim"))] if more > 0 else []
    if data.target != data.venv and (data.applied or data.dry_run):
        verb = "is" if data.applied else "would be"
        parts.append(Text(f"  {data.venv} stays as it is; the repaired copy {verb} {data.target}"))
    return parts


def _files(data: FixResult) -> list[Part]:
    """The lines that change in the files of --write."""
    parts: list[Part] = []
    for each in data.files:
        state = "would change" if data.dry_run else "written" if each.written else each.failure or "not changed"
        style = "error" if each.failure else "title"
        parts.append(
            Text.assemble("  ", (each.path, "title"), "  ", (state if each.lines else "no line changes", style))
        )
        parts += [indent(Text(line)) for line in each.lines]
        parts += [indent(Text(note, style="warning")) for note in each.notes]
        parts += [indent(Text(f"backup: {each.backup}", style="dim"))] if each.backup else []
    return parts


def _manual(manual: list[FixedFinding]) -> list[Part]:
    """The problems that envdoctor cannot fix, with their commands."""
    parts: list[Part] = [Text("for you, since envdoctor does not run these:", style="title")] if manual else []
    for each in manual:
        mark = (f"{MARKS[each.status]} ", each.status)
        parts.append(Text.assemble("  ", mark, (f"{each.finding} ", "title"), each.problem))
        parts += [indent(Text(each.fix))] if each.fix else []
        parts += [indent(Text(each.reason, style="warning"))] if each.reason else []
        parts += [indent(command(line)) for line in each.manual]
    return parts


def _others(data: FixResult) -> list[Part]:
    """The problems that remain and are not listed for the user: with details after a fix, else their ids."""
    listed = {each.finding for each in data.findings if each.state == "manual"}
    found = [finding for finding in data.remaining if finding.id not in listed]
    if data.applied:
        return [part for finding in found for part in finding_lines(finding, details=False)]
    ids = ", ".join(dict.fromkeys(finding.id for finding in found))
    return [Text(f"  other problems of {data.venv}: {ids}", style="warning")] if ids else []


def _next(data: FixResult) -> list[Part]:
    lines = [f". {shlex.quote(each.path)}" for each in data.files if each.written and each.kind == "profile"]
    if data.applied:
        lines += [shell_command(". {}/bin/activate", data.target)] if data.target != data.venv else []
        lines += [shell_command("envdoctor verify --venv {}", data.target)]
        lines += [shell_command("envdoctor rollback --venv {}", data.target)] if data.previous else []
    elif data.possible:
        lines = [shell_command("envdoctor fix {} {}", data.venv, data.possible)]
    return [Text("\nnext:"), *(indent(command(line), 2) for line in lines)] if lines else []
