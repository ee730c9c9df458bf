"""Pythons that releases can be installed on, for pasted lists, which do not say it: knowledge/pythons.toml."""

from __future__ import annotations

from functools import cache

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table
from envdoctor.knowledge.versions import public_part, satisfies


class PythonRange(Record, frozen=True, kw_only=True):
    """Releases of a package that take the same Pythons."""

    package: str
    versions: str  # specifier
    python: str  # specifier
    source: str
    date: str


@cache
def python_ranges() -> tuple[PythonRange, ...]:
    """The table, oldest releases of a package first."""
    return tuple(msgspec.convert(read_table("pythons.toml")["python"], list[PythonRange]))


def pythons_of(package: str, version: str) -> str:
    """The Pythons that a release takes, `>=3.9,<3.13`; without a version its newest one; empty if not known."""
    rows = [row for row in python_ranges() if row.package == package]
    if not version:
        return rows[-1].python if rows else ""
    return next((row.python for row in rows if satisfies(public_part(version), row.versions)), "")
