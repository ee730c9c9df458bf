"""Parser for an environment.yml."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Line
from envdoctor.resolution.requirement import InstallRequirement, parse_conda_spec, parse_install_requirement

# Files that conda refuses, and guides, also indent the keys of the file.
_KEY = lazy_pattern(r"(?:\s+(?=(?:name|channels|dependencies|prefix|variables):))?(\w+):\s*(.*)")
_ITEM = lazy_pattern(r"(\s*)-\s*(.*)")


class CondaEnvironmentFile(NamedTuple):
    """An environment.yml."""

    name: str
    channels: list[str]
    packages: list[InstallRequirement]
    pip_packages: list[InstallRequirement]
    pip_options: list[str]  # such as `--extra-index-url X`


def parse_environment_yml(lines: tuple[Line, ...]) -> CondaEnvironmentFile:
    """Parse an environment.yml line by line, because guides abbreviate and misindent it.

    name: grpo / channels: [pytorch, nvidia] / dependencies: - python=3.11 - pip: - trl==0.23.1
    """
    file = CondaEnvironmentFile("", [], [], [], [])
    section, pip_indent = "", -1
    for number, raw in lines:
        text = raw.partition(" #")[0].rstrip()
        if key := _KEY.match(text):
            section, pip_indent = key[1], -1
            if section == "name":
                file = file._replace(name=key[2].strip())
            elif section == "channels":
                file.channels.extend(part.strip() for part in key[2].strip("[] ").split(",") if part.strip())
            continue
        item = _ITEM.fullmatch(text)
        if not item:
            continue
        indent, value = len(item[1].expandtabs()), item[2].strip().strip("'\"")
        if section == "channels":
            file.channels.append(value)
        elif section == "dependencies" and value == "pip:":
            pip_indent = indent
        elif section == "dependencies":
            _add_dependency(file, number, value, in_pip=0 <= pip_indent < indent)
    return file


def stated_pip(requirements: Iterable[InstallRequirement]) -> str:
    """The release of pip that requirements of conda name: `pip=23.3.1`; empty without one."""
    specifiers = (each.specifier for each in requirements if each.name == "pip" and each.specifier.startswith("=="))
    return next(specifiers, "").lstrip("=").removesuffix(".*")


def _add_dependency(file: CondaEnvironmentFile, number: int, value: str, *, in_pip: bool) -> None:
    if in_pip and value.startswith("-"):
        file.pip_options.extend(value.split())
    elif in_pip and (requirement := parse_install_requirement(value, number)):
        file.pip_packages.append(requirement)
    elif not in_pip and (requirement := parse_conda_spec(value, number)):
        file.packages.append(requirement)
