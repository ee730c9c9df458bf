"""Node names folded and unfolded as SLURM writes them: `gpu[001-003,007],login`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envdoctor.core.errors import BadInput

MOST_NODES = 100_000
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%\[\],-]*")
HINT = "envdoctor fleet check --hosts node1,node2"


def fold_names(names: Iterable[str]) -> str:
    """Names as one list: runs of numbers of one width become ranges, in the order of the names.

    >>> fold_names(["node001", "node002", "node003", "node007", "login"])
    'login,node[001-003,007]'
    """
    families: dict[tuple[str, str, int], list[int]] = {}
    plain = []
    for name in sorted(set(names)):
        found = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
        if not found or "." in found[1] or ":" in name:  # the numbers of an address are no names of a row
            plain.append(name)
            continue
        width = len(found[2]) if found[2].startswith("0") else 0
        families.setdefault((found[1], found[3], width), []).append(int(found[2]))
    merged = _merge_widths(families)
    return ",".join([*plain, *(_fold(*family, numbers) for family, numbers in sorted(merged.items()))])


def _merge_widths(families: dict[tuple[str, str, int], list[int]]) -> dict[tuple[str, str, int], list[int]]:
    """`node100` belongs to `node001`, though only one of them begins with a zero."""
    merged: dict[tuple[str, str, int], list[int]] = {}
    for (prefix, suffix, width), numbers in families.items():
        if width:
            merged.setdefault((prefix, suffix, width), []).extend(numbers)
    for (prefix, suffix, width), numbers in families.items():
        if not width:
            for number in numbers:
                padded = (prefix, suffix, len(str(number)))
                merged.setdefault(padded if padded in merged else (prefix, suffix, 0), []).append(number)
    return merged


def _fold(prefix: str, suffix: str, width: int, numbers: list[int]) -> str:
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}d}{suffix}"
    told = [f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}" for low, high in runs]
    return f"{prefix}[{','.join(told)}]{suffix}"


def parse_names(text: str, *, where: str) -> list[str]:
    """The names in a list, each once, in its order; commas or white space between, brackets as SLURM's.

    >>> parse_names("node[01-03,7], login", where="--hosts")
    ['node01', 'node02', 'node03', 'node7', 'login']
    """
    names: dict[str, None] = {}
    for part in re.findall(r"(?:\[[^\]]*\]|[^\s,])+", text):
        if part.startswith("-") or not NAME.fullmatch(part):
            raise BadInput(
                f"{where}: '{part[:80]}' is no node's name", expected="names as node1 or user@node1", hint=HINT
            )
        for name in _unfold(part, where):
            names[name] = None
        if len(names) > MOST_NODES:
            raise BadInput(f"{where} names over {MOST_NODES} nodes", expected="fewer", hint=HINT)
    if not names:
        raise BadInput(f"{where} names no node", expected="at least one name", hint=HINT)
    return list(names)


def _unfold(part: str, where: str) -> list[str]:
    found = re.fullmatch(r"([^\[\]]*)\[([\d,-]+)\](.*)", part)
    if not found:
        if "[" in part or "]" in part:
            raise BadInput(f"{where}: '{part[:80]}' is no node's name", expected="as node[01-16]", hint=HINT)
        return [part]
    rest = _unfold(found[3], where) if found[3] else [""]
    return [f"{found[1]}{number}{end}" for number in _numbers(found[2], part, where) for end in rest]


def _numbers(text: str, part: str, where: str) -> list[str]:
    numbers: list[str] = []
    for piece in text.split(","):
        ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", piece)
        low, high = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not ends or high < low or high - low > MOST_NODES:
            raise BadInput(f"{where}: '{part[:80]}' has no range '{piece}'", expected="as node[01-16]", hint=HINT)
        numbers += [f"{number:0{len(ends[1])}d}" for number in range(low, high + 1)]
    return numbers
