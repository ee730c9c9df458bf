"""Converts the printed dictionary of a report to lines: `OrderedDict([('PyTorch', '2.0.1'), ('GCC', 'n/a')])`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern

START = lazy_pattern(r"OrderedDict\(|\{(?=['\"](?:sys\.platform|CUDA available)['\"])")
REPORT_KEY = lazy_pattern(r"['\"](?:sys\.platform|PyTorch|CUDA available|torch)['\"]")
MAX_CHARACTERS = 20_000


def expand_repr(line: str) -> list[str]:
    """The members of a printed dictionary as lines; the line itself if it contains none of a report."""
    start = START.search(line)
    if not start or len(line) > MAX_CHARACTERS or not REPORT_KEY.search(line):
        return [line]
    literal = line[start.end() if start[0][0] == "O" else start.start() :]
    end = max(literal.rfind("]"), literal.rfind("}")) + 1
    try:
        value = ast.literal_eval(literal[:end])
        members = dict(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return [line]
    rest = (line[: start.start()].strip(), literal[end:].strip(" )"))
    return [part for part in (rest[0], *_lines(members), rest[1]) if part]


def _lines(members: dict[object, object]) -> Iterator[str]:
    for key, value in members.items():
        yield from f"{key}: {value}".split("\n")
