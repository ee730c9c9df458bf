"""The pages of `--help`, laid out as all other output. Commands and option names are never broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envdoctor.commands.registry import help_sections, summary_of
from envdoctor.output.console import out
from envdoctor.output.text import Column, Part, Rows, Text, indent

Row = tuple[str, str]
DESCRIPTION = """Diagnose, install, verify and train in GPU environments.

Example: envdoctor quickstart"""
OPTIONS = {
    "--version": "Print the version and the date of the tables.",
    "-h, --help": "Show this message and exit.",
}


def application_help() -> str:
    """The help of `envdoctor` itself, from the registry of commands."""
    options = {"Options": list(OPTIONS.items())}
    return _page("envdoctor", "[OPTIONS] COMMAND [ARGS]...", DESCRIPTION, _commands(""), options)


def help_page(command: Any, context: Any, group: str = "") -> str:
    """The help of a command or a group: usage, description, commands of the group, arguments and options."""
    usage = " ".join(command.collect_usage_pieces(context))
    records = [(each, each.get_help_record(context)) for each in command.get_params(context)]
    parameters = {
        title: [row for each, row in records if row and each.param_type_name == kind]
        for title, kind in (("Arguments", "argument"), ("Options", "option"))
    }
    return _page(context.command_path, usage, command.help or "", _commands(group) if group else {}, parameters)


def _commands(group: str) -> dict[str, list[Row]]:
    """The commands of a group in sections, with their summaries."""
    return {title: [(name, summary_of(group + name)) for name in names] for title, names in help_sections(group)}


def _page(
    name: str,
    usage: str,
    description: str,
    sections: Mapping[str, Sequence[Row]],
    parameters: Mapping[str, Sequence[Row]],
) -> str:
    line = Text.assemble(("Usage: ", "dim"), (name, "command"), f" {usage}")
    parts: list[Part] = [line, *_description(description)]
    # The names of all sections are one column wide.
    width = max((len(name) for rows in sections.values() for name, _ in rows), default=0)
    parts += [part for title, rows in sections.items() for part in _section(title, rows, width)]
    parts += [part for title, rows in parameters.items() for part in _section(title, rows)]
    return out().encode(*parts).rstrip("\n")


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
