"""The causes that findings and explanations name: the common language of rules and symptoms."""

from __future__ import annotations

from functools import cache

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table


class CauseText(Record, frozen=True, kw_only=True):
    """One cause: what it is, and the fix where nothing more exact is known.

    `{name|words}` in the fix and the commands is filled from the text or the facts.
    """

    slug: str
    title: str
    definition: str
    fix: str
    commands: tuple[str, ...]
    check: str
    url: str


@cache
def causes() -> dict[str, CauseText]:
    """All causes by slug."""
    rows = read_table("causes.toml")["cause"]
    return {row.slug: row for row in msgspec.convert(rows, list[CauseText])}
