"""CUDA releases: the drivers that run them (cuda.toml), and the compilers and GPUs of their nvcc (toolkits.toml)."""

from __future__ import annotations

from functools import cache

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import load_table
from envdoctor.knowledge.versions import MajorMinor, dotted_numbers, major_minor

# Minimum driver of a CUDA major version: CUDA toolkit release notes, table 2 (Linux and Windows). The Windows column
# is empty from CUDA 13 on, because the toolkit contains no display driver there; 580 is required on both.
OLDEST_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}
WINDOWS_OLDEST_DRIVER = {11: (452, 39), 12: (527, 41), 13: (580,)}
FIRST_WITH_MINOR_COMPATIBILITY = 11
# Before CUDA 11 each release needs its own driver (Linux and Windows): the same page for CUDA 11.0, table 2, read
# 2026-11-28. 8.0 and 9.2 have the row of their first build.
DRIVERS_BEFORE_CUDA_11: dict[MajorMinor, tuple[tuple[int, ...], tuple[int, ...]]] = {
    (8, 0): ((367, 48), (369, 30)), (9, 0): ((384, 81), (385, 54)), (9, 1): ((390, 46), (391, 29)),
    (9, 2): ((396, 26), (397, 44)), (10, 0): ((410, 48), (411, 31)), (10, 1): ((418, 39), (418, 96)),
    (10, 2): ((440, 33), (441, 22)),
}  # fmt: skip
# CUDA 11 drivers by release, from the same page; cuda.toml starts at 11.8.
CUDA_11_DRIVERS = {
    "11.0": "450.36.06", "11.1": "455.23", "11.2": "460.27.03", "11.3": "465.19.01", "11.4": "470.42.01",
    "11.5": "495.29.05", "11.6": "510.39.01", "11.7": "515.43.04",
}  # fmt: skip
# The first release whose package cuda-compat supports a driver branch; other branches have none:
# docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html, read 2026-11-21.
FIRST_COMPAT = {535: "12.3", 570: "12.9", 580: "13.1"}
# R470 had packages at least from 12.0 to 12.4: docs.nvidia.com, release notes 23.01 (TensorFlow) and 24.05 (MXNet).
LEGACY_COMPAT_BRANCH = 470


class CudaRelease(Record, frozen=True):
    """A CUDA toolkit release and the Linux drivers that it needs."""

    version: str
    minimum: str  # driver for minor-version compatibility: runs native code, but not PTX of this release
    bundled: str  # driver that is part of the toolkit: runs native code and PTX
    source: str
    date: str


class Toolkit(Record, frozen=True):
    """The limits of nvcc from one CUDA release until the next row."""

    cuda: str
    gcc: int  # newest major version of gcc
    newest: str  # compute capability
    oldest: str
    source: str
    date: str


@cache
def cuda_releases() -> dict[str, CudaRelease]:
    """CUDA releases by version, "12.8"."""
    return {row.version: row for row in load_table("cuda.toml", tuple[CudaRelease, ...], "release")}


def oldest_driver(cuda: str, *, windows: bool = False) -> tuple[int, ...]:
    """The oldest driver that runs native code of a CUDA version (from 11 on: of its major version); () if unknown."""
    release = major_minor(cuda)
    if release[0] < FIRST_WITH_MINOR_COMPATIBILITY:
        return DRIVERS_BEFORE_CUDA_11.get(release, ((), ()))[windows]
    return (WINDOWS_OLDEST_DRIVER if windows else OLDEST_DRIVER).get(release[0], ())


def driver_of_cuda(cuda: str) -> str:
    """The driver that is part of a CUDA release and compiles its PTX; empty if unknown."""
    row = cuda_releases().get(cuda)
    return row.bundled if row else CUDA_11_DRIVERS.get(cuda, "")


# Compute capabilities that a release lacks although it supports a higher one: Jetson Thor was 10.1 before, and
# B300 is newer than 12.0. docs.nvidia.com/cuda/cuda-toolkit-release-notes (13.0, 12.9)
FIRST_RELEASES: dict[MajorMinor, MajorMinor] = {(11, 0): (13, 0), (10, 3): (12, 9)}


@cache
def _bundled_drivers() -> dict[str, str]:
    return CUDA_11_DRIVERS | {name: row.bundled for name, row in cuda_releases().items()}


def bundled_driver(cuda: str) -> str:
    """The driver that is part of a CUDA release; empty below 11.0."""
    return _bundled_drivers().get(cuda, "")


@cache
def cuda_of_driver(driver: str) -> str:
    """The newest CUDA release that a driver fully supports: 550.90.07 gives 12.4; empty below 11.0."""
    supported = [
        name for name, bundled in _bundled_drivers().items() if dotted_numbers(bundled) <= dotted_numbers(driver)
    ]
    return max(supported, key=major_minor, default="")


def complete_driver(text: str) -> str:
    """A driver version of which only the first numbers are given: "550.54" is 550.54.14 of CUDA 12.4."""
    if text.count(".") > 1:
        return text
    return next((each for each in _bundled_drivers().values() if f"{each}.".startswith(f"{text}.")), text)


def accepts_compat(driver: str, cuda: str) -> bool:
    """Whether the forward-compatibility package of a CUDA release supports a driver, on a data-centre GPU."""
    if dotted_numbers(driver)[0] == LEGACY_COMPAT_BRANCH:
        return (12, 0) <= major_minor(cuda) <= (12, 4)
    first = FIRST_COMPAT.get(dotted_numbers(driver)[0], "")
    return bool(first) and major_minor(cuda) >= major_minor(first)


def toolkits() -> tuple[Toolkit, ...]:
    """The limits of nvcc, oldest release first."""
    return load_table("toolkits.toml", tuple[Toolkit, ...], "toolkit")


def toolkit(cuda: MajorMinor) -> Toolkit | None:
    """The row for a release: that of 12.4 for (12, 6); None before the first row."""
    return next((row for row in reversed(toolkits()) if major_minor(row.cuda) <= cuda), None)


def first_toolkit(capability: MajorMinor) -> Toolkit | None:
    """The first release whose nvcc compiles for a compute capability; None if no row does."""
    return next(iter(toolkits_for(capability)), None)


def first_toolkit_of_generation(capability: MajorMinor) -> Toolkit | None:
    """The first release with native code for the major version; None if that is the first row or earlier."""
    row = next((row for row in toolkits() if major_minor(row.newest)[0] >= capability[0]), None)
    return None if row == toolkits()[0] else row


def toolkits_for(capability: MajorMinor) -> tuple[Toolkit, ...]:
    """The rows whose nvcc compiles for a compute capability, oldest release first."""
    first = FIRST_RELEASES.get(capability, (0, 0))
    return tuple(
        row
        for row in toolkits()
        if major_minor(row.oldest) <= capability <= major_minor(row.newest) and major_minor(row.cuda) >= first
    )
