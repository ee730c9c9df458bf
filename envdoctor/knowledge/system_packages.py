"""What a stack may need of the system, how it is recognised, and what brings it: knowledge/system_packages.toml."""

from __future__ import annotations

from functools import cache

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table


class Provided(Record, frozen=True, kw_only=True):
    """One sign that it is there: exactly one of the three."""

    program: str = ""  # on PATH
    header: str = ""  # in the include folder of the interpreter or the system
    library: str = ""  # that the loader finds


class SystemPackage(Record, frozen=True, kw_only=True):
    """A need, with the packages that meet it. `{python}` in a package's name is the Python version, 3.12."""

    name: str
    why: str
    provides: tuple[Provided, ...]  # any of them will do
    apt: tuple[str, ...] = ()  # empty: no package that is known
    dnf: tuple[str, ...] = ()
    apk: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    source: str
    date: str

    def packages(self, manager: str, python: str) -> tuple[str, ...]:
        """What to install by apt, dnf, apk or conda for a Python version such as 3.12."""
        named: dict[str, tuple[str, ...]] = {"apt": self.apt, "dnf": self.dnf, "apk": self.apk, "conda": self.conda}
        return tuple(package.replace("{python}", python) for package in named.get(manager, ()))


@cache
def system_packages() -> dict[str, SystemPackage]:
    """The table by name."""
    rows = read_table("system_packages.toml")["package"]
    return {row.name: row for row in msgspec.convert(rows, list[SystemPackage])}
