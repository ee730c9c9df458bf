"""What the package index holds: releases of the field's packages by day, with the Pythons and platforms of their
wheels.
"""

from __future__ import annotations

from functools import cache

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table
from envdoctor.knowledge.versions import is_prerelease, satisfies


class Published(Record, frozen=True):
    """One release. `kind` is wheels, any (one wheel for all platforms), source (no wheel) or other (none for
    Linux).
    """

    version: str
    date: str  # of the upload, 2025-09-13
    kind: str
    pythons: tuple[str, ...] = ()  # "3.12"; "3.8+" is a stable-ABI wheel; "3" any Python 3
    glibc: dict[str, str] = {}  # oldest glibc by platform
    yanked: bool = False  # installers take it only where it is pinned

    def has_wheel(self, platform: str = "", python: str = "", glibc: str = "") -> bool:
        """Whether a wheel of this release fits; what is not known ("") does not count against it."""
        if self.kind != "wheels":
            return self.kind == "any"
        if platform and platform not in self.glibc:
            return False
        if glibc and platform and _number(glibc) < _number(self.glibc[platform]):
            return False
        return not python or any(_fits(python, each) for each in self.pythons)


def _fits(python: str, tag: str) -> bool:
    mine = _number(python)[:2]
    if tag == "3":
        return True
    return mine >= _number(tag[:-1]) if tag.endswith("+") else mine == _number(tag)


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@cache
def _rows() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_table("published.toml")["package"]}


@cache
def published(package: str) -> tuple[Published, ...]:
    """Releases of a package, newest version first; empty for packages that the table does not hold."""
    found: list[Published] = []
    kind: str = "any"
    pythons: tuple[str, ...] = ()
    glibc: dict[str, str] = {}
    for line in _rows().get(package, {}).get("releases", "").splitlines():
        if line.startswith("["):
            kind, pythons, glibc = _parse_wheels(line.strip("[]"))
            continue
        for word in line.split():
            version, _, date = word.partition("=")
            found.append(Published(version, date.rstrip("!"), kind, pythons, glibc, date.endswith("!")))
    return tuple(found)


def _parse_wheels(text: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """`3.9,3.10 x86_64:2.28 aarch64:2.28` as wheels, their Pythons, and glibc by platform."""
    if text in ("any", "source", "other"):
        return text, (), {}
    pythons, *platforms = text.split()
    return (
        "wheels",
        tuple(pythons.split(",")),
        {name: least for name, _, least in (p.partition(":") for p in platforms)},
    )


def read_on(package: str) -> str:
    """The day on which the releases of a package were read; empty for packages that the table does not hold."""
    return _rows().get(package, {}).get("date", "")


@cache
def release_named(package: str, version: str) -> Published | None:
    """One release by its version, `2.8` as well as `2.8.0`."""
    same = (row for row in published(package) if row.version == version or satisfies(row.version, f"=={version}"))
    return next(same, None)


@cache
def admitted(package: str, specifier: str, until: str = "9") -> tuple[Published, ...]:
    """Releases up to a day that a specifier admits, newest first; candidates only where it names one."""
    rows = [row for row in published(package) if row.date <= until and satisfies(row.version, specifier) is not False]
    early = any(is_prerelease(part.lstrip("=<>~! ")) for part in specifier.split(","))
    rows = [row for row in rows if not row.yanked] or rows
    final = [row for row in rows if not is_prerelease(row.version)]
    return tuple(rows if early else final)
