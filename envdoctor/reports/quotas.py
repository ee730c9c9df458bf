"""Parser for the tables of quota tools: quota, `lfs quota`, mmlsquota, and of a cluster with a column `Use%`."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Filesystem
from envdoctor.reports.section import Line, Section, parse_size

USED = lazy_pattern(r"(?i)(?:space|disk|data)?_?used?(?:\W?[KMGT]i?B?\W?)?$|space$|usage$|blocks$|KB$")
LIMIT = lazy_pattern(r"(?i)(?:(?:hard|soft)_?)?limit$|quota$")
PERCENT = lazy_pattern(r"(?i)(?:used?|usage|full)?%(?:used?|full|usage)?$|percent\w*$")
SIZE = lazy_pattern(r"\d[\d.]{0,15}[KMGTP]?i?B?\*?%?$")
OF_DISKS = lazy_pattern(r"(?i)file_?system|director|volume|quota|disk|storage|\bpath\b")
NO_QUOTA = frozenset({"Mounted", "CPU", "GPU", "MEM"})  # of df, which counts a disk, and of `docker stats`
MIN_COLUMNS = 3


def parse_quotas(lines: list[Line]) -> Section | None:
    """Parse the rows of a full directory, which has no free space.

    ```
    Quota_Location                          AvailableGiB           UsedGiB Use%
    home_username                                     20                20  100
    ```
    """
    section = Section("disk quota")
    full: dict[str, Filesystem] = {}
    heading: list[str] = []
    for line in lines:
        words = line.text.split()
        if _is_heading(words):
            heading = words
        elif heading and sum(bool(SIZE.match(word)) for word in words[1:]) >= MIN_COLUMNS - 1:
            if _is_full(heading, words):
                full.setdefault(*_place(words[0].rstrip(":")))
        else:
            heading = []
            continue
        section.consumed.add(line.number)
    section.set_fact("storage.places", full or None)
    return section if section.facts else None


def _is_heading(words: list[str]) -> bool:
    """Whether a line names a place, what is used, and the limit or the share. Hours of a project have no place."""
    if len(words) < MIN_COLUMNS or not NO_QUOTA.isdisjoint(words) or not any(map(OF_DISKS.search, words)):
        return False
    return any(map(USED.match, words)) and any(LIMIT.match(word) or PERCENT.match(word) for word in words)


def _is_full(heading: list[str], words: list[str]) -> bool:
    """Whether the share is 100 %, a value has the mark of an exceeded quota, or the limit is used."""
    if shares := [float(word.rstrip("%")) for word in _values(PERCENT, heading, words)]:
        return max(shares) >= 100
    used, limits = (
        [parse_size(word, "k") or 0 for word in _values(pattern, heading, words)] for pattern in (USED, LIMIT)
    )
    is_marked = any(word.endswith("*") for word in words[1 : MIN_COLUMNS + 1])
    return is_marked or bool(used and limits and used[0] >= max(limits[:2]) > 0)


def _values(pattern: re.Pattern[str], heading: list[str], words: list[str]) -> list[str]:
    """The values of the columns with such a name."""
    return [
        value.rstrip("*")
        for name, value in zip(heading, words, strict=False)
        if pattern.match(name) and SIZE.match(value)
    ]


def _place(name: str) -> tuple[str, Filesystem]:
    """The role of a directory, and the directory. Of a name that is no path the one from which the command ran."""
    role = "home" if "home" in name.lower() else name
    is_path = name.startswith("/") and not name.startswith("/dev/")
    path = name if is_path else "~" if role == "home" else "."
    return role, Filesystem(path=path, total=0, free=0, kind="quota")
