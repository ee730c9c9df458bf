"""System packages that an environment may need, how to detect them, and their names: system_packages.toml."""

from __future__ import annotations

from functools import cache

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table


class Indicator(Record, frozen=True, kw_only=True):
    """A file that shows that the package is installed: exactly one of the three."""

    program: str = ""  # on PATH
    header: str = ""  # in the include directory of the interpreter or the system
    library: str = ""  # that the loader finds


class SystemPackage(TableRow, frozen=True, kw_only=True):
    """A requirement and its system packages. `{python}` in a package name is the Python version, 3.12."""

    name: str
    why: str
    provides: tuple[Indicator, ...]  # one of them is enough
    apt: tuple[str, ...] = ()  # empty if no package is known
    dnf: tuple[str, ...] = ()
    apk: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()

    def packages(self, manager: str, python: str) -> tuple[str, ...]:
        """The package names of apt, dnf, apk or conda for a Python version such as 3.12."""
        names: dict[str, tuple[str, ...]] = {"apt": self.apt, "dnf": self.dnf, "apk": self.apk, "conda": self.conda}
        return tuple(package.replace("{python}", python) for package in names.get(manager, ()))


@cache
def system_packages() -> dict[str, SystemPackage]:
    """All rows by name."""
    return {row.name: row for row in load_table("system_packages.toml", tuple[SystemPackage, ...], "package")}
