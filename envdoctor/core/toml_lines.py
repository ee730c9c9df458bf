"""Line numbers of TOML keys, which tomllib does not report. Supports the usual ways of writing TOML."""

from __future__ import annotations

import re

HEADER = r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$"
KEY = r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
LONG_STRINGS = ('"""', "'''")


def find_line(text: str, place: str) -> int:
    """The line, starting at 1, of a key such as `when.glibc` or `requirements[2].spec`; 0 if it is not found.

    For a key in an inline table or array it is the line of the enclosing key.
    """
    key_path = re.findall(r"[^.\[\]]+", place)
    lines = _index_lines(text)
    for length in range(len(key_path), 0, -1):
        if number := lines.get(tuple(key_path[:length])):
            return number
    return 0


def _index_lines(text: str) -> dict[tuple[str, ...], int]:
    """The first line of every key and table."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    inside = ""  # the quotes of a multi-line string
    for number, line in enumerate(text.split("\n"), start=1):
        if inside:
            inside = "" if inside in line else inside
            continue
        if head := re.match(HEADER, line):
            table = _split_stack(head[2])
            found.setdefault(table, number)
            if head[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, str(counts[table]))
                found.setdefault(table, number)
        elif key := re.match(KEY, line):
            found.setdefault((*table, *_split_stack(key[1])), number)
        inside = next((quotes for quotes in LONG_STRINGS if line.count(quotes) % 2), "")
    return found


def _split_stack(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in key.split("."))
