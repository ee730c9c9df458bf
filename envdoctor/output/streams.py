"""Make the standard streams robust: closed, on a full disk, read only partly, or with a limited encoding."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
from typing import Any, TextIO

from envdoctor.core.errors import EnvdoctorError

# Replacements for symbols that an encoding lacks; other characters are escaped as Python does.
REPLACEMENTS = str.maketrans("✓✗•▁▂▃▄▅▆▇█", "vx*12345678") | str.maketrans({"…": "...", "°": "deg ", "±": "+-"})
ERROR_HANDLER = "envdoctor"


class OutputLost(EnvdoctorError):  # noqa: N818  the name states the problem
    """Standard output cannot be written, for example because the disk is full."""


class StandardOutput(io.FileIO):
    """Standard output. The work continues after its reader stopped early, such as `head`; a full disk is an error."""

    lost = False
    was_closed = False  # by its reader

    def write(self, data: Any, /) -> int:  # noqa: D102
        if self.lost:
            return len(data)
        try:
            while (written := super().write(data)) is None:  # a full pipe in non-blocking mode
                select.select([], [self], [])
        except BrokenPipeError:
            self.lost = self.was_closed = True
            return len(data)
        except OSError as error:
            self.lost = True
            raise OutputLost(
                f"standard output cannot be written: {error.strerror}",
                expected="a terminal, a pipe, or a file on a disk with free space",
                hint="df -h .",
            ) from error
        return written


class StandardError(io.FileIO):
    """Standard error. If it cannot be written, its messages are dropped and the work continues."""

    def write(self, data: Any, /) -> int:  # noqa: D102
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def prepare() -> None:
    """Replace the standard streams, so that no message of the tool ends in a traceback."""
    for _ in range(3):  # closed streams become /dev/null, so that no other file gets their numbers
        if (number := os.open(os.devnull, os.O_RDWR)) > 2:
            os.close(number)
            break
    codecs.register_error(ERROR_HANDLER, _replace_symbols)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = _text_stream(StandardOutput(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text_stream(StandardError(2, "w", closefd=False), sys.stderr)


def output_was_closed() -> bool:
    """Whether the reader of standard output stopped before the end."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, StandardOutput) and raw.was_closed


def _text_stream(raw: io.FileIO, original: TextIO | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=original.encoding if original else "utf-8",
        errors=ERROR_HANDLER,
        line_buffering=raw.isatty() or raw.fileno() == 2,
    )


def _replace_symbols(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    replaced = error.object[error.start : error.end].translate(REPLACEMENTS)
    return replaced.encode("ascii", "backslashreplace").decode(), error.end
