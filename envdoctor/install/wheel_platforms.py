"""Wheels that `uv pip check` reports as built for another platform, although they are for this one."""

from __future__ import annotations

import re
from pathlib import Path

from envdoctor.core.patterns import lazy_pattern

# uv compares the tags in a wheel's WHEEL file, not those in its file name, by which it selected the wheel.
# nvidia-cusparselt-cu12 and -cu13 for aarch64 name it after Arm's Server Base System Architecture:
# "Tag: py3-none-manylinux2014_sbsa" (WHEEL of nvidia-cusparselt-cu13 0.8.1, read 2026-11-26).
OTHER_NAMES = {"sbsa": "aarch64"}
REPORTED = lazy_pattern(r"^The package `(?P<name>[\w.-]+)` was built for a different platform$", re.MULTILINE)
COUNT = lazy_pattern(r"^Found (?P<count>\d+) incompatibilit(?:y|ies)$", re.MULTILINE)


def are_for_this_platform(output: str, environment: Path, machine: str) -> bool:
    """Whether `uv pip check` found nothing but wheels that name this machine's architecture in another way."""
    names = [found["name"] for found in REPORTED.finditer(output)]
    count = COUNT.search(output)
    return (
        count is not None
        and int(count["count"]) == len(names)
        and all(_is_for(name, environment, machine) for name in names)
    )


def _is_for(name: str, environment: Path, machine: str) -> bool:
    pattern = f"lib/python*/site-packages/{re.sub(r'[-_.]+', '_', name)}-*.dist-info/WHEEL"
    tags = [
        tag
        for file in environment.glob(pattern)
        for tag in re.findall(r"^Tag: (\S+)", file.read_text(), re.MULTILINE)
    ]
    endings = {ending for tag in tags for ending in OTHER_NAMES if tag.endswith(f"_{ending}")}
    return any(OTHER_NAMES[ending] == machine for ending in endings)
