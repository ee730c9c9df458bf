"""The pages of `--help`, laid out as all other output. Commands and option names are never broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from envdoctor.commands.registry import help_sections, summary_of
from envdoctor.output.console import out
from envdoctor.output.text import Column, Part, Rows, Text, indent

if TYPE_CHECKING:  # msgspec, which the first page does not need
    from envdoctor.cli.parameters import Parameter

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


def help_page(path: str, usage: str, description: str, parameters: Sequence[Parameter], is_group: bool) -> str:
    """The help of a command or a group: usage, description, commands of the group, arguments and options."""
    sections = _commands(f"{path.partition(' ')[2]} ") if is_group else {}
    rows = {
        "Arguments": [(each.metavar, _meaning(each)) for each in parameters if not each.flags],
        "Options": [(_names(each), _meaning(each)) for each in parameters if each.flags],
    }
    return _page(path, usage, description, sections, rows)


def _names(option: Parameter) -> str:
    """The short name, the long name, and the value."""
    names = ", ".join(sorted(option.flags, key=lambda flag: flag.startswith("--")))
    return f"{names} {option.metavar}" if option.takes_value else names


def _meaning(parameter: Parameter) -> str:
    notes = [f"default: {parameter.shown_default}" if parameter.shown_default else "", parameter.range]
    notes += ["required"] if parameter.required else []
    shown = "; ".join(filter(None, notes))
    return f"{parameter.help}  [{shown}]" if shown else parameter.help


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
