"""What the name of a wheel says: release, Pythons, platform and glibc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from envdoctor.knowledge.releases import normalize_name

PLATFORMS = ("x86_64", "aarch64")
OLD_NAMES = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}  # PEP 513, 571, 599
_PLATFORM = re.compile(r"(?:manylinux_(\d+)_(\d+)|(manylinux(?:1|2010|2014))|(linux))_(\w+)")


class Wheel(NamedTuple):
    """The parts of a wheel's file name; tags as written, "cp310.cp311"."""

    name: str
    version: str
    python: str
    abi: str
    platform: str


class Built(NamedTuple):
    """What the wheels of one release are for, as knowledge/published.toml has it."""

    kind: str
    pythons: tuple[str, ...] = ()
    glibc: tuple[tuple[str, str], ...] = ()


def parse_wheel_name(filename: str) -> Wheel | None:
    """`vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl` by its parts; None for what is no wheel."""
    parts = filename.removesuffix(".whl").split("-")
    if not filename.endswith(".whl") or len(parts) not in (5, 6):
        return None
    return Wheel(normalize_name(parts[0]), parts[1], *parts[-3:])


def glibc_of(platform_tag: str) -> dict[str, str]:
    """`manylinux_2_17_x86_64.manylinux2014_x86_64` as the oldest glibc by platform; "" where the tag names none."""
    found: dict[str, str] = {}
    for tag in platform_tag.split("."):
        match = _PLATFORM.fullmatch(tag)
        if match and match[5] in PLATFORMS:
            glibc = f"{match[1]}.{match[2]}" if match[1] else OLD_NAMES.get(match[3] or "", "")
            found[match[5]] = min(found.get(match[5], glibc), glibc, key=numbers)
    return found


def pythons_of(wheel: Wheel) -> list[str]:
    """`cp38` with the stable ABI as "3.8+", `cp312` as "3.12", `py3` as "3"; free-threaded builds are left out."""
    found = []
    for tag in wheel.python.split("."):
        match = re.fullmatch(r"(cp|py)3(\d*)", tag)
        if not match or re.search(r"\dt$", wheel.abi):
            continue
        if wheel.abi == "abi3":
            found.append(f"3.{match[2]}+")
        elif match[1] == "py" or wheel.abi == "none":
            found.append("3")
        else:
            found.append(f"3.{match[2]}")
    return found


def built(files: Iterable[Wheel | None]) -> Built:
    """The kind of a release, its Pythons in order, and its oldest glibc by platform; None stands for a source."""
    files = list(files)
    wheels = [wheel for wheel in files if wheel]
    glibc: dict[str, str] = {}
    pythons: set[str] = set()
    for wheel in wheels:
        if wheel.platform == "any" or glibc_of(wheel.platform):
            pythons.update(pythons_of(wheel))
        for platform, least in glibc_of(wheel.platform).items() if pythons_of(wheel) else ():
            glibc[platform] = min(glibc.get(platform, least), least, key=numbers)
    if glibc and pythons:
        order = ("3",) if "3" in pythons else tuple(sorted(pythons, key=numbers))
        return Built("wheels", order, tuple(sorted(glibc.items(), reverse=True)))
    if any(wheel.platform == "any" for wheel in wheels):
        return Built("any")
    return Built("source" if None in files else "other")


def numbers(text: str) -> tuple[int, ...]:
    """`2.28` as (2, 28), to compare by."""
    return tuple(int(part) for part in re.findall(r"\d+", text))
