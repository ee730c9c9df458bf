"""PyTorch's builds: the CUDA version and GPU architectures of each, and the build for a machine.

Tables: torch_builds.toml, torch_libraries.toml and torch_wheels.toml.
"""

from __future__ import annotations

from functools import cache

from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies

LAST_CPU_BUILD_FOR_ARM = (2, 10)  # of PyPI; file list of torch, sizes of the files
# torch/utils/cpp_extension.py contains `from pkg_resources import packaging`: wheels of 1.7.0 to 2.3.1, 2026-11-28.
_IMPORTING_PACKAGING = ">=1.8,<2.2"


class TorchRelease(TableRow, frozen=True, kw_only=True):
    """A release line of torch."""

    torch: str  # "2.9"
    latest: str  # "2.9.1"
    python: tuple[str, str] | None = None  # oldest and newest Python with wheels
    pypi: str = ""  # CUDA version of PyPI's wheel for Linux on x86_64
    complete: tuple[str, ...] = ()  # platforms of which the table has all builds


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


def setuptools_of_builds(torch: str = "", python: str = "") -> str:
    """The requirement on setuptools for builds without isolation with a release of torch: below 82 has pkg_resources.

    setuptools 70 does not have pkg_resources.packaging, 69 and 71 have it; 71 requires Python 3.8.
    """
    if satisfies(python, "<3.8"):
        return "setuptools<70"
    return "setuptools>=71,<82" if satisfies(torch, _IMPORTING_PACKAGING) else "setuptools>=70,<82"


def install_command(build: KnownBuild) -> str:
    """The command for a new environment: `uv pip install torch==2.9.1 --torch-backend=cu128`."""
    latest = torch_releases()[build.torch].latest
    return shell_command("uv pip install torch=={} --torch-backend=cu{}", latest, build.cuda.replace(".", ""))


class TorchLibraries(TableRow, frozen=True, kw_only=True):
    """The exact requirements of torch's wheels on PyPI on NVIDIA's packages: `nvidia-cudnn-cu12==9.10.2.21`."""

    versions: tuple[str, ...]
    cuda: str
    libraries: tuple[str, ...]


def libraries_of_torch(version: str, cuda: str) -> tuple[str, ...]:
    """The packages of NVIDIA that a torch from PyPI requires; one without a CUDA version is taken to be from PyPI.

    Empty for other builds of PyTorch's index, whose requirements the table does not have.
    """
    return next(
        (row.libraries for row in torch_libraries() if version in row.versions and cuda in ("", row.cuda)), ()
    )


def torch_libraries() -> tuple[TorchLibraries, ...]:
    """The rows of torch_libraries.toml, newest releases first."""
    return load_table("torch_libraries.toml", tuple[TorchLibraries, ...], "release")


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
