"""GPU code that wheels contain, and the compute capabilities that libraries document: wheel_code.toml."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.architectures import Capability, runs_as_ptx, runs_native
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import Key, major_minor, public_part, satisfies, version_key
from envdoctor.knowledge.wheel_cuda import wheel_cuda_rows

LINUX = "x86_64"
_CLAUSE = lazy_pattern(r"(>=|<=|<)([\w.]+)")


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


class NewestCapability(TableRow, frozen=True, kw_only=True):
    """The newest compute capability for which any build of some releases has code."""

    package: str
    versions: str  # specifier
    newest: str  # "9.0"
    first: str  # release with code for later ones
    build: str  # which of its builds

    @property
    def capability(self) -> Capability:
        """The capability as a pair."""
        return major_minor(self.newest)


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


def releases_with_code(package: str, gpu: Capability, cuda: str, platform: str = LINUX) -> str:
    """The newest releases whose wheels have code for a GPU, as a specifier; empty if none has.

    `cuda` is the major version of the CUDA that their modules have to load; empty for any.
    """
    rows = [row for row in reversed(wheel_code_rows(package, platform)) if row.runs_on(gpu)]
    loaded = [row for row in reversed(wheel_cuda_rows(package)) if cuda in ("", row.cuda)]
    if not wheel_cuda_rows(package):
        return rows[0].versions if rows else ""
    shared = (intersection(row.versions, other.versions) for row in rows for other in loaded)
    return next((found for found in shared if found), "")


def intersection(one: str, other: str) -> str:
    """The range that two ranges, `>=1.5,<1.9`, share; empty if they share none."""
    clauses = [match for text in (one, other) for match in _CLAUSE.finditer(text)]
    lower = max((each[2] for each in clauses if each[1] == ">="), key=_key, default="")
    upper = min((each for each in clauses if each[1] != ">="), key=lambda each: (_key(each[2]), each[1] == "<="))
    is_empty = _key(lower) > _key(upper[2]) or (_key(lower) == _key(upper[2]) and upper[1] == "<")
    return "" if lower and is_empty else ",".join([*([f">={lower}"] if lower else []), upper[0]])


def _key(version: str) -> Key:
    key = version_key(version)
    assert key, version  # of the tables
    return key


def wheel_abis() -> tuple[WheelAbi, ...]:
    """The releases whose modules require symbols of torch with a known C++ ABI."""
    return load_table("wheel_code.toml", tuple[WheelAbi, ...], "abi")


def minimum_capabilities() -> tuple[MinimumCapability, ...]:
    """The documented minimums."""
    return load_table("wheel_code.toml", tuple[MinimumCapability, ...], "minimum")


def newest_capabilities() -> tuple[NewestCapability, ...]:
    """The releases of which no build has code for later GPUs."""
    return load_table("wheel_code.toml", tuple[NewestCapability, ...], "newest")
