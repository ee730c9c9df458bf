"""What a failed build or import needs from the machine, not from the packages: trial_needs.toml."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from envdoctor.knowledge.tables import TableRow, load_table


class MachineNeed(TableRow, frozen=True, kw_only=True):
    """A driver, a program or a library that the machine provides, and the messages of programs that lack it."""

    name: str
    pattern: str
    needs: str
    apt: tuple[str, ...] = ()
    toolkit: bool = False
    severity: Literal["unknown", "warning"] = "unknown"


class BuildPackages(TableRow, frozen=True, kw_only=True):
    """Packages that an isolated build lacks."""

    pattern: str
    packages: tuple[str, ...]


@cache
def build_packages() -> tuple[BuildPackages, ...]:
    """What to install before a build without isolation: the first row that matches decides."""
    return load_table("trial_needs.toml", tuple[BuildPackages, ...], "build")


@cache
def machine_needs() -> tuple[MachineNeed, ...]:
    """All rows in their order: the first one that matches decides."""
    return load_table("trial_needs.toml", tuple[MachineNeed, ...], "need")


def find_need(output: str) -> MachineNeed | None:
    """What a failed program lacks, of the machine; None if its output names no such need."""
    return next((row for row in machine_needs() if re.search(row.pattern, output)), None)
