"""Requirements of published releases, read from the metadata of their wheels: requires/<package>.toml.

Installed metadata has precedence. These tables serve pasted lists, which contain only versions, and identify the
releases that are compatible. `optional` contains the requirements of extras, which installers do not check later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.knowledge.tables import FOLDER, TableRow, load_table
from envdoctor.knowledge.versions import (
    is_local_build,
    is_prerelease,
    local_part,
    minor_of,
    public_part,
    satisfies,
    version_key,
)

MAX_REQUIREMENT_LENGTH = 2000  # characters, with the marker
_REQUIREMENT = lazy_pattern(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*+)\s*(?:\[[^\]]*\])?\s*\(?([^;@()]*)\)?\s*(?:;(.*))?")


class Release(TableRow, frozen=True, kw_only=True, omit_defaults=True):
    """Releases of a package with the same requirements."""

    versions: tuple[str, ...]
    requires: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class Requirement(Record, frozen=True):
    """A package and the accepted versions."""

    name: str
    specifier: str
    python: str = ""  # the specifier for Python in the marker; empty: for every Python

    def applies_to(self, python: str) -> bool:
        """Whether it applies to a Python version; also if the version is not known."""
        return not (python and self.python) or satisfies(minor_of(python), self.python) is not False


class BitsandbytesLibraries(TableRow, frozen=True, kw_only=True):
    """bitsandbytes releases and the CUDA versions of the native libraries in their Linux wheels."""

    versions: tuple[str, ...]
    x86_64: tuple[str, ...]


class WithdrawnReleases(TableRow, frozen=True, kw_only=True):
    """Releases of a package that the index had, and no longer lists."""

    package: str
    versions: str  # specifier


class TorchPairing(TableRow, frozen=True, kw_only=True):
    """A release whose compiled code works with one torch release, although its metadata does not require it."""

    package: str
    versions: str  # specifier
    torch: str  # specifier
    imports: str = ""  # torch releases with which it can be imported; empty: all


class Numpy2Release(TableRow, frozen=True, kw_only=True):
    """The first release of a package whose compiled modules support NumPy 2."""

    package: str
    first: str
    first_windows: str = ""


@cache
def parse_requirement(line: str) -> Requirement | None:
    """`torch (==2.8.0) ; platform_system == "Linux"` as torch and ==2.8.0; None for URLs and extras."""
    # With many spaces in a row, the pattern would need time in the cube of their number.
    found = _REQUIREMENT.fullmatch(" ".join(line.split())) if len(line) <= MAX_REQUIREMENT_LENGTH else None
    if not found or "extra" in (found[3] or ""):
        return None
    specifier = "".join(found[2].split()).strip(",")
    if ".*" in specifier:  # `torch (>=1.9.*)` of pytorch-lightning 1.6 means `>=1.9`
        specifier = re.sub(r"((?:^|,)[<>]=?[\w.]+)\.\*", r"\1", specifier)
    return Requirement(normalize_name(found[1]), specifier, _python_of_marker(found[3] or ""))


def leading_name(line: str) -> str:
    """The normalized name at the start of a requirement: `Flash_Attn[x] >=2` is "flash-attn"; empty without one."""
    found = re.match(r"[A-Za-z0-9._-]+", line)
    return normalize_name(found[0]) if found else ""


_PYTHON_MARKER = lazy_pattern(r"""python_version\s?([<>=!~]{1,2})\s?["']([\d.]{1,12})["']""")


def _python_of_marker(marker: str) -> str:
    """`<3.12` of `python_version < "3.12"`; empty if the marker has alternatives."""
    return "" if " or " in marker else ",".join("".join(clause) for clause in _PYTHON_MARKER.findall(marker))


_URL_REQUIREMENT = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*\s?(?:\[[^\[\]]*\])?\s?@\s?\S")


@cache
def is_requirement(line: str) -> bool:
    """Whether a Requires-Dist line without its marker parses: `torch (==2.8.0)`, `trl[vllm] @ https://...`.

    Not `torch(((`, an empty line, or `torch>=2.0 <3`.
    """
    if len(line) > MAX_REQUIREMENT_LENGTH or line.count("(") != line.count(")"):
        return False
    found = parse_requirement(line)
    if found is None:
        return bool(_URL_REQUIREMENT.match(line))
    return not found.specifier or (found.specifier[0] in "=<>!~" and satisfies("0", found.specifier) is not None)


@cache
def normalize_name(name: str) -> str:
    """A distribution's normalized name: `flashinfer_python` gives flashinfer-python."""
    return re.sub(r"[-_.]+", "-", name).lower()


_TORCH_BUILD = lazy_pattern(r"cpu$|cu\d{3}$|rocm|xpu")
_OF_CUDA = lazy_pattern(r"nvidia-[a-z0-9-]+-(cu\d\d)(?!\d)")


@cache
def releases_of(package: str) -> dict[str, Release]:
    """The releases of a package by version, newest first; empty for packages without a table."""
    name = f"requires/{package}.toml"
    rows = load_table(name, tuple[Release, ...], "release") if (FOLDER / name).exists() else ()
    return {version: row for row in rows for version in row.versions}


def requirements_of_release(package: str, version: str) -> tuple[str, ...]:
    """The requirement lines of a release, and the torch that its compiled code needs if they do not name it.

    Empty if the tables do not contain the release, or if the version is a local build. The tables have the wheels for
    CUDA: vLLM's builds for other devices require another torch.
    """
    if is_local_build(version) or (package == "vllm" and re.match(r"cpu|rocm|xpu", local_part(version))):
        return ()
    row = releases_of(package).get(public_part(version)) or _neighbours(package, public_part(version))
    requires = _of_build(row.requires, local_part(version)) if row else ()
    return (*requires, *_undeclared_requirements(package, public_part(version)))


def _of_build(requires: tuple[str, ...], build: str) -> tuple[str, ...]:
    """The requirements without NVIDIA's packages for another CUDA than that of a build of the PyTorch index.

    The tables have those of the wheels on PyPI: torch 2.2.0 for CUDA 12.1 requires nvidia-nccl-cu12, and its build
    for CUDA 11.8 nvidia-nccl-cu11 (locks of public projects with 2.2.0, 2.3.1 and 2.7.1+cu118, 2026-11-29).
    """
    if not _TORCH_BUILD.match(build):
        return requires
    cuda = build[:4]
    return tuple(line for line in requires if (match := _OF_CUDA.match(line)) is None or match[1] == cuda)


def is_before_requirements(package: str, version: str) -> bool:
    """Whether a release is older than all of a package whose requirements the tables contain: its own are unknown."""
    oldest = next(reversed(releases_of(package)), "")
    return bool(oldest) and satisfies(public_part(version), f"<{oldest}") is True


@cache
def _neighbours(package: str, version: str) -> Release | None:
    """The row of the other patch releases of a minor version, if all of them have the same requirements.

    The index does not list a release that was withdrawn, transformers 4.46.0, nor one that is newer than the table.
    """
    rows = {id(row): row for release, row in releases_of(package).items() if minor_of(release) == minor_of(version)}
    return next(iter(rows.values())) if len(rows) == 1 and not is_prerelease(version) else None


@cache
def _undeclared_requirements(package: str, version: str) -> tuple[str, ...]:
    """`torch>=2.11` of torchaudio 2.11.0, whose metadata does not name torch."""
    rows = torch_pairings(package, "undeclared")
    return tuple(f"torch{row.torch}" for row in rows if satisfies(version, row.versions))


def is_measured(package: str, torch: str) -> bool:
    """Whether a specifier of torch is that of a package's compiled code, which its metadata does not have."""
    return any(row.torch == torch for row in torch_pairings(package, "undeclared"))


def has_conda_build(package: str, version: str, torch: str) -> bool:
    """Whether conda has a build of this release for a torch that the wheel on PyPI is not built for."""
    rows = torch_pairings(package, "conda")
    return any(satisfies(version, row.versions) and satisfies(public_part(torch), row.torch) for row in rows)


def undeclared_versions(package: str, torch: str) -> str:
    """The releases of a package for a torch that their metadata does not name: `==3.2.*`; empty if there are none."""
    rows = torch_pairings(package, "undeclared")
    return next((row.versions for row in rows if satisfies(torch, row.torch)), "")


def optional_specifier(package: str, version: str, dependency: str) -> str:
    """The versions that the extras of a release require: ">=0.22.0,<=0.31.0"; empty if they do not name it.

    A release that is newer than the table has at least the lower bounds of the newest one in it.
    """
    releases = releases_of(package)
    row = releases.get(public_part(version))
    if row or not releases or not satisfies(public_part(version), f">{next(iter(releases))}"):
        return _specifier(row.optional if row else (), dependency)
    specifier = _specifier(next(iter(releases.values())).optional, dependency)
    return ",".join(part for part in specifier.split(",") if part.startswith(">"))


def checked_specifier(package: str, version: str, dependency: str) -> str:
    """The versions of an optional dependency that a release checks when it runs; mostly those of its extras."""
    if dependency == "torch":
        for row in torch_pairings(package, "checked"):
            if satisfies(version, row.versions):
                return row.torch
    return optional_specifier(package, version, dependency)


def required_specifier(package: str, version: str, dependency: str) -> str:
    """The versions of a dependency that a release requires: "==2.8.0"; empty if it does not name it."""
    return _specifier(requirements_of_release(package, version), dependency)


@cache
def releases_that_accept(package: str, dependency: str, version: str) -> tuple[str, ...]:
    """Releases of a package, newest first, that name a dependency and accept this version of it."""
    accepting = []
    for release, row in releases_of(package).items():
        specifier = _specifier((*requirements_of_release(package, release), *row.optional), dependency)
        if specifier and satisfies(version, specifier):
            accepting.append(release)
    return tuple(accepting)


@cache
def releases_that_pin(package: str, dependency: str, version: str) -> tuple[str, ...]:
    """Releases of a package, newest first, that require exactly this version of a dependency."""
    return tuple(
        release
        for release in releases_of(package)
        if (specifier := required_specifier(package, release, dependency)).startswith("==")
        and satisfies(version, specifier)
    )


def version_range(versions: Iterable[str]) -> str:
    """The oldest and the newest version: "0.11.1 to 0.13.0"."""
    ordered = sorted(versions, key=lambda version: version_key(version) or ((0,), (0, 0), 0, 0))
    if len(ordered) < 2:
        return ordered[0] if ordered else ""
    return f"{ordered[0]} to {ordered[-1]}"


def is_withdrawn(package: str, version: str) -> bool:
    """Whether a release was removed from the index: what requires exactly it cannot be installed."""
    rows = load_table("companions.toml", tuple[WithdrawnReleases, ...], "withdrawn")
    return any(row.package == package and satisfies(version, row.versions) for row in rows)


def bitsandbytes_libraries() -> tuple[BitsandbytesLibraries, ...]:
    """The CUDA versions of the native libraries of bitsandbytes, oldest releases first."""
    return load_table("companions.toml", tuple[BitsandbytesLibraries, ...], "bitsandbytes")


def torch_pairings(package: str, table: str = "pairing") -> tuple[TorchPairing, ...]:
    """The torch releases that a compiled package works with, where its metadata does not require them."""
    rows = load_table("companions.toml", tuple[TorchPairing, ...], table)
    return tuple(row for row in rows if row.package == package)


def numpy2_releases() -> tuple[Numpy2Release, ...]:
    """The first releases that support NumPy 2."""
    return load_table("companions.toml", tuple[Numpy2Release, ...], "numpy2")


@cache
def _specifier(lines: tuple[str, ...], dependency: str) -> str:
    requirements = (parse_requirement(line) for line in lines)
    return ",".join(row.specifier for row in requirements if row and row.name == dependency and row.specifier)
