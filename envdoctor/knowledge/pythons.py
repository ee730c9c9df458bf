"""The Python versions that releases support, for pasted lists without metadata: pythons.toml."""

from __future__ import annotations

from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import public_part, satisfies


class PythonRange(TableRow, frozen=True, kw_only=True):
    """Releases of a package that support the same Python versions."""

    package: str
    versions: str  # specifier
    python: str  # specifier


def python_ranges() -> tuple[PythonRange, ...]:
    """All rows, oldest releases of a package first."""
    return load_table("pythons.toml", tuple[PythonRange, ...], "python")


def supported_pythons(package: str, version: str) -> str:
    """The Python versions of a release, `>=3.9,<3.13`; of the newest one without a version; empty if unknown."""
    rows = [row for row in python_ranges() if row.package == package]
    if not version:
        return rows[-1].python if rows else ""
    return next((row.python for row in rows if satisfies(public_part(version), row.versions)), "")
