"""Errors for invalid input, and the forms in which messages show values. Standard library only."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Sequence
from typing import Any

Conflict = tuple[str, str, str]  # observed, expected, hint


class BadInput(Exception):  # noqa: N818  (named after the event that it becomes)
    """A setting, file or argument that cannot be used: the observed value and its source, `expected`, `hint`."""

    def __init__(self, message: str, *, expected: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.expected, self.hint = message, expected, hint

    def as_record(self) -> dict[str, str]:
        """The error as a JSON object."""
        return {"message": self.message, "expected": self.expected, "hint": self.hint}


def suggest(word: str, known: Sequence[str]) -> str:
    """` (did you mean 'x'?)` for the nearest known word, else an empty string."""
    near = nearest(word, known)
    return f" (did you mean {near!r}?)" if near else ""


def nearest(word: str, known: Sequence[str]) -> str:
    """The known word that is most similar; empty if none is."""
    return next(iter(difflib.get_close_matches(str(word), known, 1)), "")


def format_value(value: Any) -> str:
    """A value as written after `--set KEY=`."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def set_option(name: str, text: str) -> str:
    """`--set NAME=VALUE` as the shell reads it."""
    return f"--set {shlex.quote(f'{name}={text}')}"


def describe(value: object) -> str:
    """A value and its type. Sample: 'eight' (str)."""
    return f"{shorten(repr(value))} ({type(value).__name__})"


def shorten(text: str) -> str:
    """Cut a text to 60 characters, for a message of one line."""
    return text if len(text) <= 60 else text[:57] + "..."
