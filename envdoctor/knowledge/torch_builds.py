"""PyTorch's builds: the CUDA version and GPU architectures of each, and the build for a machine.

Tables: torch_builds.toml and torch_wheels.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from envdoctor.knowledge.cuda import driver_of_cuda, oldest_driver
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import MajorMinor, dotted_numbers, major_minor


class TorchRelease(TableRow, frozen=True, kw_only=True):
    """A release line of torch."""

    torch: str  # "2.9"
    latest: str  # "2.9.1"
    python: tuple[str, str] | None = None  # oldest and newest Python with wheels


class KnownBuild(TableRow, frozen=True, kw_only=True):
    """One Linux build, with the native code and PTX of its libtorch_cuda."""

    torch: str
    cuda: str
    platform: str
    architectures: tuple[str, ...]
    ptx: tuple[str, ...] = ()


@cache
def torch_releases() -> dict[str, TorchRelease]:
    """Release lines by name, "2.9"."""
    return {row.torch: row for row in load_table("torch_builds.toml", tuple[TorchRelease, ...], "release")}


def known_builds() -> tuple[KnownBuild, ...]:
    """All builds, oldest first."""
    return load_table("torch_builds.toml", tuple[KnownBuild, ...], "build")


def known_build(torch: str, cuda: str, platform: str) -> KnownBuild | None:
    """The build of a release line ("2.9"), a CUDA version ("12.8") and a platform; None if there is none."""
    rows = (row for row in known_builds() if (row.torch, row.cuda, row.platform) == (torch, cuda, platform))
    return next(rows, None)


def rank_builds(
    builds: Iterable[KnownBuild], *, driver: str = "", near: str = "", windows: bool = False
) -> list[KnownBuild]:
    """The builds that run on this driver, best first.

    Builds that the driver fully supports come before those that need minor-version compatibility. Among them the
    torch release nearest to `near` comes first, newer before older, then the newest CUDA.
    """
    installed = dotted_numbers(driver)
    supported = [row for row in builds if not installed or installed >= oldest_driver(row.cuda, windows=windows)]
    wanted = major_minor(near) if near else (99, 0)

    def rank(row: KnownBuild) -> tuple[bool, bool, int, MajorMinor]:
        fully_supported = not installed or dotted_numbers(driver_of_cuda(row.cuda)) <= installed
        release = major_minor(row.torch)
        distance = abs((release[0] - wanted[0]) * 100 + release[1] - wanted[1])
        newest = major_minor(row.cuda)
        return (not fully_supported, release < wanted, distance, (-newest[0], -newest[1]))

    return sorted(supported, key=rank)


def install_command(build: KnownBuild) -> str:
    """The command that installs a build: `uv pip install torch==2.9.1 --torch-backend=cu128`."""
    latest = torch_releases()[build.torch].latest
    return f"uv pip install torch=={latest} --torch-backend=cu{build.cuda.replace('.', '')}"


def build_name(build: KnownBuild) -> str:
    """The name of a build: `torch 2.9.1 for CUDA 12.8`."""
    return f"torch {torch_releases()[build.torch].latest} for CUDA {build.cuda}"


class TorchWheel(TableRow, frozen=True, kw_only=True):
    """A wheel of torch's family on the PyTorch index, with its published hash."""

    name: str
    version: str
    backend: str  # of the index; files of this name in other backends and on PyPI have other hashes
    python: str
    architecture: str
    sha256: str
    size: int = 0  # bytes, 0 if unknown


class TorchRequires(TableRow, frozen=True, kw_only=True):
    """The requirements of a release's wheels; `metadata` is the published SHA-256 of their METADATA."""

    name: str
    version: str
    metadata: str = ""
    requires: tuple[str, ...]


def published_wheels(backend: str, python: str, architecture: str) -> list[TorchWheel]:
    """The wheels of the PyTorch index with known hashes for a backend, Python and architecture."""
    rows = load_table("torch_wheels.toml", tuple[TorchWheel, ...], "wheel")
    wanted = (backend, python, architecture)
    return [row for row in rows if (row.backend, row.python, row.architecture) == wanted]


def published_requires(name: str, version: str) -> tuple[str, ...]:
    """The requirements in the METADATA of a release of torch's family; every wheel of the table has a row."""
    rows = load_table("torch_wheels.toml", tuple[TorchRequires, ...], "release")
    return next(row.requires for row in rows if (row.name, row.version) == (name, version))
