"""Lines of a TOML text that a key stands in: tomllib gives none. Good for the usual ways of writing, else 0."""

from __future__ import annotations

import re

HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
LONG_STRINGS = ('"""', "'''")


def find_line(text: str, place: str) -> int:
    """The line, from 1, of a place such as `when.glibc` or `requirements[2].spec`; of the part above it where the
    place itself is in an inline table or array; 0 where there is neither.
    """
    wanted = re.findall(r"[^.\[\]]+", place)
    lines = _places(text)
    for length in range(len(wanted), 0, -1):
        if number := lines.get(tuple(wanted[:length])):
            return number
    return 0


def _places(text: str) -> dict[tuple[str, ...], int]:
    """The first line of every key and table."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    inside = ""  # of a string over several lines
    for number, line in enumerate(text.split("\n"), start=1):
        if inside:
            inside = "" if inside in line else inside
            continue
        if head := HEADER.match(line):
            table = _parts(head[2])
            found.setdefault(table, number)
            if head[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, str(counts[table]))
                found.setdefault(table, number)
        elif key := KEY.match(line):
            found.setdefault((*table, *_parts(key[1])), number)
        inside = next((quotes for quotes in LONG_STRINGS if line.count(quotes) % 2), "")
    return found


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in key.split("."))
