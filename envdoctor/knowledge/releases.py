"""What releases of the field's libraries require, read from their wheels: knowledge/requires/<package>.toml.

Installed metadata says it first; these tables serve pasted lists, which name versions only, and say which release
fits which. `optional` holds what stands in extras, which no installer checks later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table
from envdoctor.knowledge.versions import public_part, satisfies, version_key

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;@()]*)\)?\s*(?:;(.*))?")
_FOLDER = Path(__file__).parent / "requires"


class Release(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Releases of a package that require the same."""

    versions: tuple[str, ...]
    requires: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    source: str
    date: str


class Requirement(NamedTuple):
    """A package and the versions of it that are accepted."""

    name: str
    specifier: str


class NativeLibrary(Record, frozen=True, kw_only=True):
    """bitsandbytes releases and the CUDA versions that their Linux wheels have a library for."""

    versions: tuple[str, ...]
    x86_64: tuple[str, ...]
    source: str
    date: str


class Pairing(Record, frozen=True, kw_only=True):
    """A release whose compiled code belongs to one torch release, which no metadata says."""

    package: str
    versions: str  # specifier
    torch: str  # specifier
    source: str
    date: str


class ModuleForNumpy2(Record, frozen=True, kw_only=True):
    """The first release of a package whose compiled modules work with NumPy 2."""

    package: str
    first: str
    first_windows: str = ""
    source: str
    date: str


@cache
def parse_requirement(line: str) -> Requirement | None:
    """`torch (==2.8.0) ; platform_system == "Linux"` as torch and ==2.8.0; None for URLs and what is in an extra."""
    found = _REQUIREMENT.fullmatch(line)
    if not found or "extra" in (found[3] or ""):
        return None
    return Requirement(normalise(found[1]), "".join(found[2].split()))


@cache
def normalise(name: str) -> str:
    """A distribution's name as it is compared: `flashinfer_python` is flashinfer-python."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def releases_of(package: str) -> dict[str, Release]:
    """The measured releases of a package by version, newest first; empty for packages without a table."""
    if not (_FOLDER / f"{package}.toml").exists():
        return {}
    rows = msgspec.convert(read_table(f"requires/{package}.toml")["release"], list[Release])
    return {version: row for row in rows for version in row.versions}


def declared(package: str, version: str) -> tuple[str, ...]:
    """Requirement lines of a release, by the tables."""
    row = releases_of(package).get(public_part(version))
    return row.requires if row else ()


def optional_requirement(package: str, version: str, wanted: str) -> str:
    """What the extras of a release say of a package: ">=0.22.0,<=0.31.0"; empty where they say nothing."""
    row = releases_of(package).get(public_part(version))
    return _specifier_of(row.optional if row else (), wanted)


def required(package: str, version: str, wanted: str) -> str:
    """What a release requires of a package, by the tables: "==2.8.0"."""
    return _specifier_of(declared(package, version), wanted)


def releases_that_accept(package: str, wanted: str, version: str) -> list[str]:
    """Releases of a package, newest first, that name `wanted` in a way that accepts this version of it."""
    fitting = []
    for release, row in releases_of(package).items():
        specifier = _specifier_of((*row.requires, *row.optional), wanted)
        if specifier and satisfies(version, specifier):
            fitting.append(release)
    return fitting


def releases_that_pin(package: str, wanted: str, version: str) -> list[str]:
    """Releases of a package, newest first, that require exactly this version of `wanted`."""
    return [
        release
        for release in releases_of(package)
        if (found := required(package, release, wanted)).startswith("==") and satisfies(version, found)
    ]


def span(versions: Iterable[str]) -> str:
    """Versions in few words: "0.11.1 to 0.13.0"."""
    ordered = sorted(versions, key=lambda version: version_key(version) or ((0,), (0, 0), 0, 0))
    if len(ordered) < 2:
        return ordered[0] if ordered else ""
    return f"{ordered[0]} to {ordered[-1]}"


@cache
def bitsandbytes_libraries() -> tuple[NativeLibrary, ...]:
    """Which bitsandbytes has a native library for which CUDA."""
    return tuple(msgspec.convert(read_table("companions.toml")["bitsandbytes"], list[NativeLibrary]))


@cache
def pairings() -> tuple[Pairing, ...]:
    """Compiled packages and the torch releases they belong to, beyond what metadata says."""
    return tuple(msgspec.convert(read_table("companions.toml")["pairing"], list[Pairing]))


@cache
def modules_for_numpy_2() -> tuple[ModuleForNumpy2, ...]:
    """First releases that work with NumPy 2."""
    return tuple(msgspec.convert(read_table("companions.toml")["numpy2"], list[ModuleForNumpy2]))


def _specifier_of(lines: Iterable[str], wanted: str) -> str:
    found = [each.specifier for each in map(parse_requirement, lines) if each and each.name == wanted]
    return ",".join(part for part in found if part)
