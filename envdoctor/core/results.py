"""The result of a command: its data, which the output layer renders, and its exit code."""

from __future__ import annotations

from typing import Any

from envdoctor.core.errors import EXIT_OK
from envdoctor.core.record import Record


class CommandResult(Record, frozen=True):
    """Data and exit code of a command that finished."""

    data: Any
    exit_code: int = EXIT_OK


class TextOutput(Record, frozen=True):
    """A text that is printed as it is."""

    text: str


class WrittenFile(Record, frozen=True):
    """A file that the command wrote."""

    path: str
    summary: str
