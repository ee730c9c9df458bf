"""PyTorch's own builds: which CUDA and which GPUs each has code for, and which of them suits a machine."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import cuda_releases, read_table

Pair = tuple[int, int]  # major and minor, to compare by

# The smallest driver of a CUDA major version: CUDA toolkit release notes, table 2 (Linux and Windows; from 13 on the
# Windows column is empty, since the toolkit brings no display driver there, and 580 holds for both).
OLDEST_DRIVER = {10: (440, 33), 11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}
WINDOWS_OLDEST_DRIVER = {10: (441, 22), 11: (452, 39), 12: (527, 41), 13: (580,)}
# CUDA 11 drivers by release: the same page; cuda.toml begins with 11.8.
CUDA_11_DRIVERS = {
    "11.0": "450.36.06", "11.1": "455.23", "11.2": "460.27.03", "11.3": "465.19.01", "11.4": "470.42.01",
    "11.5": "495.29.05", "11.6": "510.39.01", "11.7": "515.43.04",
}  # fmt: skip


class TorchRelease(Record, frozen=True, kw_only=True):
    """A release line of torch."""

    torch: str  # "2.9"
    latest: str  # "2.9.1"
    python: tuple[str, str] | None = None  # oldest and newest Python with wheels
    source: str
    date: str


class KnownBuild(Record, frozen=True, kw_only=True):
    """One Linux build: native code and PTX of libtorch_cuda."""

    torch: str
    cuda: str
    platform: str
    architectures: tuple[str, ...]
    ptx: tuple[str, ...] = ()
    source: str
    date: str


def pair(text: str) -> Pair:
    """`12.8.93` as (12, 8)."""
    major, _, rest = text.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def driver_key(text: str) -> tuple[int, ...]:
    """`570.124.06` as (570, 124, 6)."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@cache
def torch_releases() -> dict[str, TorchRelease]:
    """Release lines by name, "2.9"."""
    rows = msgspec.convert(_table()["release"], list[TorchRelease])
    return {row.torch: row for row in rows}


@cache
def known_builds() -> tuple[KnownBuild, ...]:
    """All builds of the table, oldest first."""
    return tuple(msgspec.convert(_table()["build"], list[KnownBuild]))


def known_build(torch: str, cuda: str, platform: str) -> KnownBuild | None:
    """The build of a release line ("2.9"), a CUDA version ("12.8") and a platform; None where the table has none."""
    rows = (row for row in known_builds() if (row.torch, row.cuda, row.platform) == (torch, cuda, platform))
    return next(rows, None)


def oldest_driver(cuda: str, *, windows: bool = False) -> tuple[int, ...]:
    """The smallest driver that runs native code of this CUDA's major version; empty where it is not known."""
    return (WINDOWS_OLDEST_DRIVER if windows else OLDEST_DRIVER).get(pair(cuda)[0], ())


def driver_of_cuda(cuda: str) -> str:
    """The driver that a CUDA release shipped with, which also compiles its PTX; empty where it is not known."""
    row = cuda_releases().get(cuda)
    return row.bundled if row else CUDA_11_DRIVERS.get(cuda, "")


def cuda_of_driver(driver: str) -> str:
    """The newest CUDA release that a driver knows in full, by the table: 550.90.07 gives 12.4; empty below 11.0."""
    rows = CUDA_11_DRIVERS | {name: row.bundled for name, row in cuda_releases().items()}
    known = [name for name, bundled in rows.items() if driver_key(bundled) <= driver_key(driver)]
    return max(known, key=pair, default="")


def builds_for(
    runs: Iterable[KnownBuild], *, driver: str = "", near: str = "", windows: bool = False
) -> list[KnownBuild]:
    """Builds in the order in which to try them on this driver.

    Those that the driver knows in full come first, then those it runs by minor-version compatibility; among them
    the release nearest to `near`, newer before older, and the newest CUDA.
    """
    ours = driver_key(driver)
    fitting = [row for row in runs if not ours or ours >= oldest_driver(row.cuda, windows=windows)]
    wanted = pair(near) if near else (99, 0)

    def rank(row: KnownBuild) -> tuple[bool, bool, int, Pair]:
        whole = not ours or driver_key(driver_of_cuda(row.cuda)) <= ours
        release = pair(row.torch)
        distance = abs((release[0] - wanted[0]) * 100 + release[1] - wanted[1])
        newest = pair(row.cuda)
        return (not whole, release < wanted, distance, (-newest[0], -newest[1]))

    return sorted(fitting, key=rank)


def install_command(build: KnownBuild) -> str:
    """The command that installs a build: `uv pip install torch==2.9.1 --torch-backend=cu128`."""
    latest = torch_releases()[build.torch].latest
    return f"uv pip install torch=={latest} --torch-backend=cu{build.cuda.replace('.', '')}"


def in_words(build: KnownBuild) -> str:
    """A build by name: `torch 2.9.1 for CUDA 12.8`."""
    return f"torch {torch_releases()[build.torch].latest} for CUDA {build.cuda}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "torch_builds.toml").read_text(encoding="utf-8"))


class TorchWheel(Record, frozen=True, kw_only=True):
    """A wheel of torch's family on the PyTorch index, with its published hash."""

    name: str
    version: str
    backend: str  # the part of the index: another part, and PyPI, may have a file of this name with another hash
    python: str
    architecture: str
    sha256: str
    size: int = 0  # bytes, 0 where it is not known
    source: str
    date: str


class TorchRequires(Record, frozen=True, kw_only=True):
    """What one release's wheels require; `metadata` is the published SHA-256 of the METADATA that says so."""

    name: str
    version: str
    metadata: str = ""
    requires: tuple[str, ...]
    source: str
    date: str


def published_wheels(backend: str, python: str, architecture: str) -> list[TorchWheel]:
    """The wheels of the PyTorch index for a platform and Python whose hashes are known."""
    rows = msgspec.convert(read_table("torch_wheels.toml")["wheel"], list[TorchWheel])
    asked = (backend, python, architecture)
    return [row for row in rows if (row.backend, row.python, row.architecture) == asked]


def published_requires(name: str, version: str) -> tuple[str, ...]:
    """What a release of torch's family requires, as its METADATA says it; every wheel of the table has its row."""
    rows = msgspec.convert(read_table("torch_wheels.toml")["release"], list[TorchRequires])
    return next(row.requires for row in rows if (row.name, row.version) == (name, version))
