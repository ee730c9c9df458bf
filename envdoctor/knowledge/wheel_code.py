"""GPU code that wheels contain, and the compute capabilities that libraries document: wheel_code.toml."""

from __future__ import annotations

from envdoctor.knowledge.architectures import Capability, runs_as_ptx, runs_native
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import major_minor, public_part, satisfies

LINUX = "x86_64"


class WheelCode(TableRow, frozen=True, kw_only=True):
    """The GPU code of the kernels in the wheels of some releases: native ("sm_90") and PTX ("compute_90")."""

    package: str
    versions: str  # specifier
    code: tuple[str, ...]
    platform: str = LINUX

    def runs_on(self, gpu: Capability) -> bool:
        """Whether a GPU runs the native code, or the driver compiles the PTX for it."""
        return runs_native(self.code, gpu) or runs_as_ptx(self.code, gpu)


class MinimumCapability(TableRow, frozen=True, kw_only=True):
    """The lowest compute capability that a library documents for some releases, on all platforms."""

    package: str
    versions: str  # specifier
    least: str  # "8.0"

    @property
    def capability(self) -> Capability:
        """The capability as a pair."""
        return major_minor(self.least)


class WheelAbi(TableRow, frozen=True, kw_only=True):
    """The C++ ABI of the symbols of torch that the modules of some releases require, in wheels for x86_64."""

    package: str
    versions: str  # specifier
    cxx11: bool  # the ABI of torch from 2.7 on
    effect: str  # with the other one


def wheel_code_rows(package: str, platform: str = LINUX) -> tuple[WheelCode, ...]:
    """The rows of a package for one platform, oldest releases first."""
    rows = load_table("wheel_code.toml", tuple[WheelCode, ...], "wheel")
    return tuple(row for row in rows if row.package == package and row.platform == platform)


def packages_with_code() -> tuple[str, ...]:
    """The packages of the table."""
    rows = load_table("wheel_code.toml", tuple[WheelCode, ...], "wheel")
    return tuple(dict.fromkeys(row.package for row in rows))


def wheel_code(package: str, version: str, platform: str = LINUX) -> WheelCode | None:
    """The row of a release; None if it is not in the table."""
    rows = wheel_code_rows(package, platform)
    return next((row for row in rows if satisfies(public_part(version), row.versions)), None)


def releases_with_code(package: str, gpu: Capability, platform: str = LINUX) -> str:
    """The newest releases whose wheels have code for a GPU, as a specifier; empty if none has."""
    rows = reversed(wheel_code_rows(package, platform))
    return next((row.versions for row in rows if row.runs_on(gpu)), "")


def wheel_abis() -> tuple[WheelAbi, ...]:
    """The releases whose modules require symbols of torch with a known C++ ABI."""
    return load_table("wheel_code.toml", tuple[WheelAbi, ...], "abi")


def minimum_capabilities() -> tuple[MinimumCapability, ...]:
    """The documented minimums."""
    return load_table("wheel_code.toml", tuple[MinimumCapability, ...], "minimum")
