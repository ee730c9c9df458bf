"""Patterns of error texts: lines that indicate a cause (symptoms), and lines that give context (signals)."""

from __future__ import annotations

import re
from functools import cache

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.remedies import Notation
from envdoctor.knowledge.causes import Question
from envdoctor.knowledge.tables import FOLDER, load_table

MINIMUM_LITERAL = 4  # characters; shorter texts are in every block of a log
PIECE = lazy_pattern(  # a run of literal characters, an escape, a character class, a quantifier, or one character
    r"[^\\.\[(){}^$*+?|]+(?![?*{])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|.", re.DOTALL
)


class Signal(Record, frozen=True, kw_only=True):
    """A line that is not a problem, but gives its context: WSL, aarch64, a frame inside flash-attn."""

    name: str
    pattern: str


class Symptom(Record, frozen=True, kw_only=True):
    """A line that indicates a cause.

    `weight`: the percentage of texts with this line (and `when`, and none of `unless`) that have this cause.
    `outranks`: causes that are only consequences if this line is present. `undecided`: texts with this line have
    different causes that the line does not distinguish; `find_out` has the commands that do. Named groups of the
    pattern fill `fix` and `remedies`; without them, those of the cause apply.
    """

    id: str
    cause: str
    pattern: str
    weight: int
    sample: str  # a real line; a test checks that the pattern matches it
    when: tuple[str, ...] = ()  # signals that must all be present
    unless: tuple[str, ...] = ()  # signals that must all be missing
    outranks: tuple[str, ...] = ()
    fix: str = ""
    remedies: Notation | None = None
    check: str = ""
    url: str = ""
    undecided: bool = False
    never_decided: bool = False  # undecided also next to other symptoms of its cause
    requirement: bool = False  # documentation has such lines too: what a library needs
    find_out: tuple[Question, ...] = ()


class SymptomTable(Record, frozen=True):
    """All symptoms and signals."""

    symptoms: tuple[Symptom, ...]
    signals: dict[str, Signal]


class SymptomFile(Record, frozen=True):
    """One file of this directory."""

    symptom: tuple[Symptom, ...] = ()
    signal: tuple[Signal, ...] = ()


@cache
def symptom_table() -> SymptomTable:
    """The symptoms and signals of all files of this directory."""
    names = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("symptoms/*.toml"))
    files = [load_table(name, SymptomFile) for name in names]
    symptoms = tuple(symptom for file in files for symptom in file.symptom)
    return SymptomTable(symptoms, {signal.name: signal for file in files for signal in file.signal})


@cache
def required_literals(pattern: str) -> tuple[str, ...]:
    r"""Literal texts; every match of the pattern contains one of them. A fast search looks for them first.

    `libcudart\.so\.(\d+): cannot open|no libcudart` gives `(': cannot open', 'no libcudart')`: the longest of each
    top-level alternative. Characters in groups and classes, and those with `?`, `*` or `{`, are not literal.
    """
    literals = tuple(max(_literal_runs(pieces), key=len, default="") for pieces in _alternatives(pattern))
    return literals if all(len(literal) >= MINIMUM_LITERAL for literal in literals) else ()


def alternatives(pattern: str) -> list[str]:
    """The top-level alternatives of a pattern."""
    return ["".join(pieces) for pieces in _alternatives(pattern, keep_groups=True)]


def _alternatives(pattern: str, *, keep_groups: bool = False) -> list[list[str]]:
    """The pieces of each top-level alternative; a group is one piece `()` unless its pieces are kept."""
    found: list[list[str]] = [[]]
    depth = 0
    for piece in PIECE.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if depth == 0 and piece == "|":
            found.append([])
        elif keep_groups or (depth == 0 and piece != ")"):
            found[-1].append(piece)
        elif depth == 0:
            found[-1].append("()")
    return found


def _literal_runs(pieces: list[str]) -> list[str]:
    """Sequences of adjacent literal characters."""
    runs = [""]
    for piece in pieces:
        if piece in ("?", "*") or (piece[0] == "{" and len(piece) > 1):
            runs[-1] = runs[-1][:-1]  # the quantifier makes the previous character optional
            runs.append("")
        elif piece[0] not in "\\[.^$+()":
            runs[-1] += piece
        elif len(piece) == 2 and piece[0] == "\\" and not piece[1].isalnum():
            runs[-1] += piece[1]
        else:
            runs.append("")
    return runs
