"""Reads the text that a user pasted into a file or pipes to a command."""

from __future__ import annotations

import sys
from pathlib import Path

from envdoctor.core.decoding import open_input
from envdoctor.core.errors import BadInput

MAX_BYTES = 16 << 20  # pasted reports have a few KiB; only the beginning of a longer text is read


def read_pasted_text(name: str) -> str:
    """The text of a file, or of standard input for `-`, up to MAX_BYTES."""
    if name == "-":
        return sys.stdin.buffer.read(MAX_BYTES).decode("utf-8", "replace")
    hint = "envdoctor check --from-report report.txt"
    expected = "a file with a pasted report, or - for standard input"
    with open_input(Path(name), expected=expected, hint=hint) as stream:
        try:
            return stream.read(MAX_BYTES).decode("utf-8", "replace")
        except OSError as error:  # some systems open a directory and fail at the first read
            raise BadInput(f"cannot read {name}: {error.strerror}", expected="a file", hint=hint) from error
