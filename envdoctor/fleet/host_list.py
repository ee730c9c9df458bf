"""Host lists in SLURM's notation, such as `gpu[001-003,007],login`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern

MAX_NODES = 100_000
NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.:@%\[\],-]*")
HINT = "envdoctor fleet check --hosts node1,node2"


def format_host_list(names: Iterable[str]) -> str:
    """Format names as one list, sorted; numbers of the same width become ranges.

    >>> format_host_list(["node001", "node002", "node003", "node007", "login"])
    'login,node[001-003,007]'
    """
    families: dict[tuple[str, str, int], list[int]] = {}
    single = []
    for name in sorted(set(names)):
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
        if not match or "." in match[1] or ":" in name:  # an address or domain name is not numbered
            single.append(name)
            continue
        width = len(match[2]) if match[2].startswith("0") else 0
        families.setdefault((match[1], match[3], width), []).append(int(match[2]))
    merged = _merge_widths(families)
    return ",".join([*single, *(_format_family(*family, numbers) for family, numbers in sorted(merged.items()))])


def _merge_widths(families: dict[tuple[str, str, int], list[int]]) -> dict[tuple[str, str, int], list[int]]:
    """Merge numbers with and without leading zeros: `node100` belongs to the family of `node001`."""
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


def _format_family(prefix: str, suffix: str, width: int, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}d}{suffix}"
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    parts = [f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}" for low, high in ranges]
    return f"{prefix}[{','.join(parts)}]{suffix}"


def parse_host_list(text: str, *, where: str) -> list[str]:
    """Parse a list of names, separated by commas or white space, with SLURM's brackets. Duplicates are removed.

    >>> parse_host_list("node[01-03,7], login", where="--hosts")
    ['node01', 'node02', 'node03', 'node7', 'login']
    """
    names: dict[str, None] = {}
    for part in re.findall(r"(?:\[[^\]]*\]|[^\s,])+", text):
        if part.startswith("-") or not NAME.fullmatch(part):
            expected = "names such as node1 or user@node1"
            raise BadInput(f"{where}: '{part[:80]}' is not a node name", expected=expected, hint=HINT)
        for name in _expand(part, where):
            names[name] = None
        if len(names) > MAX_NODES:
            raise BadInput(f"{where} names over {MAX_NODES} nodes", expected="fewer nodes", hint=HINT)
    if not names:
        raise BadInput(f"{where} names no node", expected="at least one name", hint=HINT)
    return list(names)


def _expand(part: str, where: str) -> list[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([\d,-]+)\](.*)", part)
    if not match:
        if "[" in part or "]" in part:
            raise BadInput(f"{where}: '{part[:80]}' is not a node name", expected="node[01-16]", hint=HINT)
        return [part]
    rest = _expand(match[3], where) if match[3] else [""]
    return [f"{match[1]}{number}{suffix}" for number in _numbers(match[2], part, where) for suffix in rest]


def _numbers(text: str, part: str, where: str) -> list[str]:
    numbers: list[str] = []
    for item in text.split(","):
        bounds = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", item)
        low, high = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if not bounds or high < low or high - low > MAX_NODES:
            raise BadInput(f"{where}: '{item}' in '{part[:80]}' is not a range", expected="node[01-16]", hint=HINT)
        numbers += [f"{number:0{len(bounds[1])}d}" for number in range(low, high + 1)]
    return numbers
