"""Renderer of `envdoctor add`: what changed, what was kept, and whether the notebook must be restarted."""

from __future__ import annotations

from envdoctor.commands.add import AddResult
from envdoctor.output.display import display
from envdoctor.output.text import Part, Text, command, count, indent, table


def render_add(data: AddResult) -> list[Part]:
    """The verdict, the changes and the next command."""
    added = sum(not change.before for change in data.changes)
    replaced = sum(bool(change.before) for change in data.changes)
    verb = "" if data.installed else "would be "
    numbers = f"{count(added, 'package')} {verb}added, {replaced} {verb}replaced"
    torch = next((line for line in data.kept if line.startswith("torch==")), "torch")
    mark, style = ("✗", "error") if data.findings else ("✓", "ok")
    place = f"{data.service}, {data.python}" if data.service else data.python
    parts: list[Part] = [Text.assemble((f"{mark} ", style), (numbers, "title"), f"; {torch} kept ({place})")]
    if data.origin:
        parts.append(indent(Text(data.origin)))
    if data.changes:
        rows = table("package", "before", "after")
        for change in data.changes:
            rows.add_row(change.name, change.before or "-", change.after or "-")
        parts.append(rows)
    if display().verbose:
        parts.append(indent(Text(f"kept: {', '.join(data.kept)}")))
    if data.restart:
        names = ", ".join(change.name for change in data.changes if change.before)
        text = f"restart the Python of the notebook if it has imported {names}: {data.restart}"
        parts.append(Text.assemble(("! ", "warning"), text if data.service else f"{names}: {data.restart}"))
    # Without remedies, which would replace torch.
    parts += [
        Text.assemble(("✗ ", "error"), f"{each.id} {each.message}  ", (f"[{each.cause}]", "dim"))
        for each in data.findings
    ]
    if data.findings and not data.installed:
        parts.append(Text("nothing was installed"))
    return [*parts, Text("\nnext:", style="title"), indent(command(data.next_command))]
