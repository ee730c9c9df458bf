"""The pages of `--help`, laid out as all other output. Commands and option names are never broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envdoctor.output.console import out
from envdoctor.output.text import Column, Part, Rows, Text, indent

Row = tuple[str, str]


def help_page(command: Any, context: Any, sections: Mapping[str, Sequence[Row]] | None = None) -> str:
    """The help of a command or a group: usage, description, commands in sections, arguments and options."""
    parts: list[Part] = [_usage(command, context), *_description(command.help or "")]
    # The names of all sections are one column wide.
    width = max((len(name) for rows in (sections or {}).values() for name, _ in rows), default=0)
    parts += [part for title, rows in (sections or {}).items() for part in _section(title, rows, width)]
    records = [(each, each.get_help_record(context)) for each in command.get_params(context)]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        parts += _section(title, [row for each, row in records if row and each.param_type_name == kind])
    return out().encode(*parts).rstrip("\n")


def _usage(command: Any, context: Any) -> Text:
    usage = Text.assemble(("Usage: ", "dim"), (context.command_path, "command"), " ")
    return usage.append(" ".join(command.collect_usage_pieces(context)))


def _description(text: str) -> Iterator[Part]:
    for paragraph in text.split("\n\n"):
        unwrapped = " ".join(paragraph.split())
        example = re.fullmatch(r"Example: (.*)", unwrapped)
        yield Text()
        line = Text.assemble("Example: ", (example[1], "command")) if example else Text(unwrapped)
        yield indent(line, 2)


def _section(title: str, rows: Sequence[Row], width: int = 0) -> list[Part]:
    if not rows:
        return []
    table = Rows(Column(""), Column(""), header=False)
    for name, text in rows:
        table.add_row(Text(name.ljust(width), style="title", wrap=False), text)
    return [Text(f"\n{title}:", style="title"), indent(table, 2)]
