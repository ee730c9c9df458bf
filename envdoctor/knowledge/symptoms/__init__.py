"""What error texts look like: lines that speak for a cause (symptoms), lines that only set the scene (signals)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.records import Record

LITERAL_AT_LEAST = 4  # characters; shorter ones are in every block of a log


class Signal(Record, frozen=True, kw_only=True):
    """A line that is no problem, but tells what one is about: WSL, aarch64, a frame inside flash-attn."""

    name: str
    pattern: str


class Symptom(Record, frozen=True, kw_only=True):
    """A line that speaks for a cause.

    `weight`, 0 to 100: of a hundred texts with this line (and `when`, and none of `unless`), so many have this cause.
    `outranks`: causes that are only consequences when this line is there. Named groups of the pattern fill `fix` and
    `commands`; both may be empty, then the cause's own are taken.
    """

    id: str
    cause: str
    pattern: str
    weight: int
    sample: str  # a real line that the pattern must find: tested
    when: tuple[str, ...] = ()  # signals that must all be seen
    unless: tuple[str, ...] = ()  # signals none of which may be seen
    outranks: tuple[str, ...] = ()
    fix: str = ""
    commands: tuple[str, ...] = ()
    check: str = ""
    url: str = ""


class SymptomTable(Record, frozen=True):
    """All symptoms and signals."""

    symptoms: tuple[Symptom, ...]
    signals: dict[str, Signal]


@cache
def symptom_table() -> SymptomTable:
    """All tables of this folder."""
    rows: dict[str, list[Any]] = {"symptom": [], "signal": []}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        table = _read(path)
        for kind, found in rows.items():
            found.extend(table.get(kind, []))
    symptoms = msgspec.convert(rows["symptom"], tuple[Symptom, ...])
    signals = msgspec.convert(rows["signal"], list[Signal])
    return SymptomTable(symptoms, {signal.name: signal for signal in signals})


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(path.read_text(encoding="utf-8"))


def required_literals(pattern: str) -> tuple[str, ...]:
    r"""Texts of which one must be in whatever the pattern matches: what a fast search looks for first.

    `libcudart\.so\.(\d+): cannot open|no libcudart` gives `(': cannot open', 'no libcudart')`: the longest of each
    alternative at the top level. Characters inside groups and classes, and those with `?`, `*` or `{`, do not count.
    """
    literals = tuple(max(_runs(branch), key=len, default="") for branch in _branches(pattern))
    return literals if all(len(literal) >= LITERAL_AT_LEAST for literal in literals) else ()


def _branches(pattern: str) -> list[list[str]]:
    """The pieces of each top-level alternative; a group is one piece `()`."""
    branches: list[list[str]] = [[]]
    depth = 0
    for piece in _pieces(pattern):
        if piece == "(":
            depth += 1
            continue
        if piece == ")":
            depth -= 1
            if depth == 0:
                branches[-1].append("()")
            continue
        if depth == 0 and piece == "|":
            branches.append([])
        elif depth == 0:
            branches[-1].append(piece)
    return branches


def _pieces(pattern: str) -> list[str]:
    return re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.", pattern, re.DOTALL)


def _runs(pieces: list[str]) -> list[str]:
    """Runs of characters that must stand next to each other."""
    runs = [""]
    for piece in pieces:
        if piece in ("?", "*") or (piece[0] == "{" and len(piece) > 1):
            runs[-1] = runs[-1][:-1]  # what stood before it may be missing
            runs.append("")
        elif len(piece) == 1 and piece not in ".^$+()":
            runs[-1] += piece
        elif len(piece) == 2 and piece[0] == "\\" and not piece[1].isalnum():
            runs[-1] += piece[1]
        else:
            runs.append("")
    return runs
