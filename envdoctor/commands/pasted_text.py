"""Reads the text that a user pasted into a file or pipes to a command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from envdoctor.core.decoding import open_input
from envdoctor.core.errors import BadInput
from envdoctor.core.files import decode_text

MAX_BYTES = 16 << 20  # pasted reports have a few KiB; only the beginning of a longer text is read


def read_pasted_text(name: str) -> tuple[str, str]:
    """The text of a file, or of standard input for `-`, and a note if what follows MAX_BYTES was not read."""
    if name == "-":
        return _read_start(sys.stdin.buffer)
    hint = "envdoctor check --from-report report.txt"
    expected = "a file with a pasted report, or - for standard input"
    with open_input(Path(name), expected=expected, hint=hint) as stream:
        try:
            return _read_start(stream)
        except OSError as error:  # of a network file system
            raise BadInput(f"cannot read {name}: {error.strerror}", expected="a file", hint=hint) from error


def _read_start(stream: BinaryIO) -> tuple[str, str]:
    text = decode_text(stream.read(MAX_BYTES), "replace")
    return text, f"only the first {MAX_BYTES >> 20} MiB were read" if stream.read(1) else ""
