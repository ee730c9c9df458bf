"""Requirements of a setup.cfg of setuptools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.files import Files
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.requirement_files import requirements_of_file
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement


class SetupCfg(NamedTuple):
    """What a setup.cfg installs."""

    python: str  # specifier
    requirements: tuple[InstallRequirement, ...]
    extras: dict[str, tuple[InstallRequirement, ...]]


def parse_setup_cfg(lines: tuple[Line, ...], files: Files) -> SetupCfg | None:
    """Parse a setup.cfg; None if its syntax is not valid."""
    from configparser import ConfigParser, Error

    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string("\n".join(text for _, text in lines))
    except Error:
        return None
    required = parser.get("options", "install_requires", fallback="")
    extras = parser.items("options.extras_require") if parser.has_section("options.extras_require") else ()
    return SetupCfg(
        parser.get("options", "python_requires", fallback=""),
        tuple(_requirements(required, lines, files)),
        {normalize_name(name): tuple(_requirements(value, lines, files)) for name, value in extras},
    )


def _requirements(value: str, lines: tuple[Line, ...], files: Files) -> Iterator[InstallRequirement]:
    """The requirements in an option: on its lines, or in files (`file: requirements.txt, more.txt`)."""
    if value.strip().startswith("file:"):
        for path in filter(None, re.split(r"[,\s]+", value.strip().removeprefix("file:"))):
            yield from requirements_of_file(path, _line_with(lines, path), files)
        return
    for each in filter(None, map(str.strip, value.splitlines())):
        if requirement := parse_install_requirement(each, _line_with(lines, each)):
            yield requirement


def _line_with(lines: tuple[Line, ...], part: str) -> int:
    return next((number for number, line in lines if part in line), 1)
