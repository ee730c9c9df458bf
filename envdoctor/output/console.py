"""Rich consoles: data on stdout, progress and errors on stderr; width and colour follow the terminal and NO_COLOR."""

from __future__ import annotations

import os
from functools import cache

from rich.console import Console
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


def _width() -> int | None:
    """COLUMNS where it is set; a pipe has no width of its own and gets 100."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else None


@cache
def out() -> Console:
    """For data."""
    console = Console(theme=THEME, highlight=False, width=_width())
    return console if console.is_terminal or _width() else Console(theme=THEME, highlight=False, width=100)


@cache
def err() -> Console:
    """For progress and errors."""
    return Console(theme=THEME, highlight=False, stderr=True, width=_width())
