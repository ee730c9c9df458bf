"""Wheel file names: release, Pythons, platform and glibc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import numbers_in

PLATFORMS = ("x86_64", "aarch64")
LEGACY_MANYLINUX = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}  # PEP 513, 571, 599
_PLATFORM = lazy_pattern(r"(?:manylinux_(\d+)_(\d+)|(manylinux(?:1|2010|2014))|(linux))_(\w+)")


class Wheel(NamedTuple):
    """The parts of a wheel's file name; tags as in the name, such as "cp310.cp311"."""

    name: str
    version: str
    python: str
    abi: str
    platform: str


class WheelSummary(NamedTuple):
    """The kind, Pythons and glibc of a release's wheels, as in knowledge/published.toml."""

    kind: str
    pythons: tuple[str, ...] = ()
    glibc: tuple[tuple[str, str], ...] = ()


def parse_wheel_name(filename: str) -> Wheel | None:
    """Parse `vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl`; None for another kind of file."""
    parts = filename.removesuffix(".whl").split("-")
    if not filename.endswith(".whl") or len(parts) not in (5, 6):
        return None
    return Wheel(normalize_name(parts[0]), parts[1], *parts[-3:])


def glibc_of(platform_tag: str) -> dict[str, str]:
    """Return the oldest glibc by platform for `manylinux_2_17_x86_64.manylinux2014_x86_64`; "" without one."""
    oldest: dict[str, str] = {}
    for tag in platform_tag.split("."):
        match = _PLATFORM.fullmatch(tag)
        if match and match[5] in PLATFORMS:
            glibc = f"{match[1]}.{match[2]}" if match[1] else LEGACY_MANYLINUX.get(match[3] or "", "")
            oldest[match[5]] = min(oldest.get(match[5], glibc), glibc, key=numbers_in)
    return oldest


def pythons_of(wheel: Wheel) -> list[str]:
    """Return "3.8+" for `cp38` with the stable ABI, "3.12" for `cp312`, "3" for `py3`; none for free threading."""
    pythons = []
    for tag in wheel.python.split("."):
        match = re.fullmatch(r"(cp|py)3(\d*)", tag)
        if not match or re.search(r"\dt$", wheel.abi):
            continue
        if wheel.abi == "abi3":
            pythons.append(f"3.{match[2]}+")
        elif match[1] == "py" or wheel.abi == "none":
            pythons.append("3")
        else:
            pythons.append(f"3.{match[2]}")
    return pythons


def summarize_wheels(files: Iterable[Wheel | None]) -> WheelSummary:
    """Summarize the files of a release; None stands for a source archive."""
    files = list(files)
    wheels = [wheel for wheel in files if wheel]
    glibc: dict[str, str] = {}
    pythons: set[str] = set()
    for wheel in wheels:
        if wheel.platform == "any" or glibc_of(wheel.platform):
            pythons.update(pythons_of(wheel))
        for platform, version in glibc_of(wheel.platform).items() if pythons_of(wheel) else ():
            glibc[platform] = min(glibc.get(platform, version), version, key=numbers_in)
    if glibc and pythons:
        order = ("3",) if "3" in pythons else tuple(sorted(pythons, key=numbers_in))
        return WheelSummary("wheels", order, tuple(sorted(glibc.items(), reverse=True)))
    if any(wheel.platform == "any" for wheel in wheels):
        return WheelSummary("any")
    return WheelSummary("source" if None in files else "other")
