"""Rich consoles: data on stdout, progress and errors on stderr. Colours follow the terminal and NO_COLOR."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.theme import Theme

THEME = Theme(
    {
        "ok": "green",
        "info": "cyan",
        "warning": "yellow",
        "error": "bold red",
        "unknown": "magenta",
        "crashed": "bold red",
        "dim": "dim",
        "title": "bold",
        "command": "bold cyan",
    }
)


PIPE_WIDTH = 120  # width of tables in a pipe
LOG_WIDTH = 100_000  # stderr in a log: every message is one line


def _width(stream: TextIO, pipe_width: int) -> int | None:
    """COLUMNS if it is set; on a terminal None, Rich then uses the width of the terminal; else `pipe_width`."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    return None if stream.isatty() else pipe_width


@cache
def out() -> Console:
    """The console for data."""
    return Console(theme=THEME, highlight=False, width=_width(sys.stdout, PIPE_WIDTH))


@cache
def err() -> Console:
    """The console for progress and errors."""
    return Console(theme=THEME, highlight=False, stderr=True, width=_width(sys.stderr, LOG_WIDTH))


def table(*columns: str) -> Table:
    """A table without lines."""
    rows = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        rows.add_column(column, overflow="fold")
    return rows


def indent(part: RenderableType, left: int = 4) -> Padding:
    """The part, indented by `left` columns."""
    return Padding(part, (0, 0, 0, left), expand=False)
