"""The standard streams as they were given: closed, full, read to the half, of an encoding that lacks our marks."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
from typing import Any, TextIO

from envdoctor.core.errors import EnvdoctorError

# What stands for our marks where an encoding lacks them; all else is spelt as Python does, so that nothing is lost.
PLAIN = str.maketrans("✓✗•▁▂▃▄▅▆▇█", "vx*12345678") | str.maketrans({"…": "...", "°": "deg ", "±": "+-"})


class OutputLost(EnvdoctorError):  # noqa: N818  the name states the problem
    """Standard output cannot take the answer, on a full disk for instance."""


class Output(io.FileIO):
    """Standard output: a reader that has seen enough, as `head` has, is no error; a full disk is."""

    lost = False

    def write(self, data: Any, /) -> int:  # noqa: D102
        if self.lost:
            return len(data)
        try:
            while (written := super().write(data)) is None:  # a pipe that somebody made non-blocking is full
                select.select([], [self], [])
        except BrokenPipeError:
            self.lost = True
            return len(data)
        except OSError as error:
            self.lost = True
            raise OutputLost(
                f"standard output cannot be written: {error.strerror}",
                expected="a terminal, a pipe or a file on a disk with room",
                hint="df -h .",
            ) from error
        return written


class Messages(io.FileIO):
    """Standard error: where it cannot be written there is nobody to tell, and the work goes on."""

    def write(self, data: Any, /) -> int:  # noqa: D102
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def prepare() -> None:
    """Make the standard streams such that no message of ours ends in a traceback."""
    for _ in range(3):  # what is closed becomes /dev/null, so that no file that is opened later takes its number
        if (number := os.open(os.devnull, os.O_RDWR)) > 2:
            os.close(number)
            break
    codecs.register_error("envdoctor", _spelt)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = _text(Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(Messages(2, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, given: TextIO | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=given.encoding if given else "utf-8",
        errors="envdoctor",
        line_buffering=raw.isatty() or raw.fileno() == 2,
    )


def _spelt(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end].translate(PLAIN)
    return lacking.encode("ascii", "backslashreplace").decode(), error.end
