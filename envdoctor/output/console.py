"""Where all human output is written: data on stdout, progress and errors on stderr.

On a terminal, text wraps at spaces, never within a command, a path or a name. In a pipe, nothing is wrapped, padded
or coloured. Colours follow --color, the terminal, NO_COLOR and FORCE_COLOR.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from envdoctor.core.printable import printable
from envdoctor.output.display import Color, display
from envdoctor.output.layout import cell_width, lines
from envdoctor.output.text import Part, Text, Verbatim
from envdoctor.redact.output import without_secrets

DEFAULT_WIDTH = 80
COLORS = {
    "ok": "32",
    "info": "36",
    "warning": "33",
    "error": "1;31",
    "unknown": "35",
    "crashed": "1;31",
    "dim": "2",
    "title": "1",
    "command": "1;36",
}


class Output:
    """A standard stream for people, with a part at its end that can be updated on a terminal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_terminal: bool = getattr(sys, name).isatty()
        self.is_live = self.is_terminal and os.environ.get("TERM") != "dumb"
        self._updated: tuple[Part, ...] = ()
        self._updated_rows = 0
        self._lock = threading.RLock()

    @property
    def color(self) -> bool:
        """Whether to use colours."""
        return _use_color(display().color, is_terminal=self.is_terminal)

    @property
    def width(self) -> int | None:
        """The columns of the terminal; None in a pipe, where nothing is wrapped."""
        if not self.is_terminal:
            return None
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit() and int(columns) > 0:
            return int(columns)
        try:
            return os.get_terminal_size(getattr(sys, self.name).fileno()).columns or DEFAULT_WIDTH
        except (OSError, ValueError):
            return DEFAULT_WIDTH

    def encode(self, *parts: Part) -> str:
        """The parts as they are written to this stream."""
        width = self.width
        return "".join(
            printable(part.text) if isinstance(part, Verbatim) else self._encode(lines(part, width)) for part in parts
        )

    def print(self, *parts: Part) -> None:
        """Write parts, each on lines of its own, above the updated part."""
        with self.paused():
            self._write(self.encode(*parts))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the updated part while something is written above it."""
        with self._lock:
            updated = self._updated
            self.clear()
            yield
            if updated:
                self.update(*updated)

    def update(self, *parts: Part) -> None:
        """Replace the updated part at the end of the output. Only for a terminal (`is_live`)."""
        with self._lock:
            self.clear()
            width = self.width or DEFAULT_WIDTH
            shown = [line for part in parts for line in lines(part, width)]
            self._write(self._encode(shown))
            self._updated = parts
            self._updated_rows = sum(max(1, -(-cell_width(line.plain) // width)) for line in shown)

    def clear(self) -> None:
        """Remove the updated part."""
        with self._lock:
            if self._updated_rows:
                self._write(f"\x1b[{self._updated_rows}A\r\x1b[J")
            self._updated, self._updated_rows = (), 0

    def _write(self, text: str) -> None:
        stream = getattr(sys, self.name)
        stream.write(without_secrets(text))
        stream.flush()

    def _encode(self, shown: Iterable[Text]) -> str:
        use_color = self.color
        return "".join((self._colored(line) if use_color else line.plain) + "\n" for line in shown)

    @staticmethod
    def _colored(line: Text) -> str:
        codes = ((text, COLORS.get(style)) for text, style in line.pieces)
        return "".join(f"\x1b[{code}m{text}\x1b[0m" if code else text for text, code in codes)


def _use_color(requested: Color, *, is_terminal: bool) -> bool:
    if requested != "auto":
        return requested == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal and os.environ.get("TERM") != "dumb"


@cache
def out() -> Output:
    """The output for data."""
    return Output("stdout")


@cache
def err() -> Output:
    """The output for progress and errors."""
    return Output("stderr")
