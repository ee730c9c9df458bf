"""Human output of `update`, and the line about old tables."""

from __future__ import annotations

from envdoctor.commands.update import UpdateResult
from envdoctor.output.text import Part, Text, indent

TABLES_SHOWN = 8


def render_update(data: UpdateResult) -> list[Part]:
    """The tables that are used now, those before, and what differs."""
    place = " of this installation" if data.bundled else ""
    if data.now == data.before:
        return [Text.assemble(("✓ ", "ok"), f"the tables {data.now}{place} are the newest that {data.source} has")]
    parts: list[Part] = [
        Text.assemble(("✓ ", "ok"), ("tables " + data.now, "title"), f"{place} are used; before: {data.before}")
    ]
    if data.key:
        parts.append(indent(Text(f"signed by {data.key}" + (f", from {data.source}" if data.source else "")), 2))
    if data.changed:
        more = len(data.changed) - TABLES_SHOWN
        names = ", ".join(data.changed[:TABLES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        parts.append(indent(Text(f"changed: {names}"), 2))
    return parts
