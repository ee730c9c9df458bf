"""Packages that depend on each other in ways that METADATA does not show: rows of companions.toml."""

from __future__ import annotations

from typing import Literal

from envdoctor.knowledge.tables import TableRow, load_table


class EqualVersions(TableRow, frozen=True, kw_only=True):
    """Two packages that must have the same version."""

    packages: tuple[str, str]
    versions: str  # specifier: the releases of the first package that compare them
    status: Literal["error", "warning"]
    consequence: str  # of different versions
    accepts_older: bool = False  # an older second package fits


class SameModule(TableRow, frozen=True, kw_only=True):
    """Two packages that install one module. The second one is kept."""

    packages: tuple[str, str]
    module: str
    cause: str
    status: Literal["warning", "info"]
    consequence: str  # of both


def equal_versions() -> tuple[EqualVersions, ...]:
    """The pairs that must have the same version."""
    return load_table("companions.toml", tuple[EqualVersions, ...], "equal")


def same_modules() -> tuple[SameModule, ...]:
    """The pairs that install one module."""
    return load_table("companions.toml", tuple[SameModule, ...], "same_module")
