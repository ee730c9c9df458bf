"""Parsers for files that a guide contains: environment.yml, pyproject.toml, Dockerfile."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from envdoctor.manifests.markdown import Block, Line
from envdoctor.resolution.requirement import InstallRequirement, parse_conda_spec, parse_install_requirement

_ITEM = re.compile(r"(\s*)-\s*(.*)")
_INSTRUCTION = re.compile(r"\s*(FROM|RUN|ENV|ARG|SHELL|COPY|ADD|CMD|ENTRYPOINT)\s+(.*)", re.IGNORECASE)


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
        if key := re.match(r"(\w+):\s*(.*)", text):
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


def _add_dependency(file: CondaEnvironmentFile, number: int, value: str, *, in_pip: bool) -> None:
    if in_pip and value.startswith("-"):
        file.pip_options.extend(value.split())
    elif in_pip and (requirement := parse_install_requirement(value, number)):
        file.pip_packages.append(requirement)
    elif not in_pip and (requirement := parse_conda_spec(value, number)):
        file.packages.append(requirement)


class PyProject(NamedTuple):
    """The requirements of a pyproject.toml, and the indexes in [tool.uv]."""

    requirements: list[InstallRequirement]
    indexes: dict[str, str]  # name -> URL
    sources: dict[str, str]  # package -> index name


def parse_pyproject(block: Block) -> PyProject | None:
    """Parse a pyproject.toml; None if it is not valid TOML."""
    import tomllib

    try:
        data: dict[str, Any] = tomllib.loads(block.text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    project, uv = _table(data, "project"), _table(_table(data, "tool"), "uv")
    texts = list(_list(project.get("dependencies")))
    for group in (*_table(project, "optional-dependencies").values(), *_table(data, "dependency-groups").values()):
        texts += _list(group)
    indexes = {
        str(row.get("name", "")): str(row.get("url", "")) for row in _list(uv.get("index")) if isinstance(row, dict)
    }
    sources = {}
    for name, value in _table(uv, "sources").items():
        tables = value if isinstance(value, list) else [value]
        table = next((table for table in tables if isinstance(table, dict)), {})
        if "index" in table:
            sources[name] = str(table["index"])
    requirements = [
        requirement
        for text in texts
        if isinstance(text, str) and (requirement := parse_install_requirement(text, _line_of(block, text)))
    ]
    return PyProject(requirements, indexes, sources)


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _line_of(block: Block, text: str) -> int:
    return next((number for number, line in block.lines if text in line), block.lines[0][0] if block.lines else 0)


class DockerfileInstruction(NamedTuple):
    """An instruction of a Dockerfile with its continuation lines."""

    name: str
    lines: tuple[Line, ...]


def parse_dockerfile(lines: tuple[Line, ...]) -> list[DockerfileInstruction]:
    """The instructions of a Dockerfile: `RUN pip install torch && \\` and its continuation lines are one."""
    instructions: list[DockerfileInstruction] = []
    continues = False
    for number, text in lines:
        start = None if continues else _INSTRUCTION.fullmatch(text)
        if start:
            instructions.append(DockerfileInstruction(start[1].upper(), ((number, start[2]),)))
        elif instructions and (continues or not text.lstrip().startswith("#")):
            last = instructions[-1]
            instructions[-1] = last._replace(lines=(*last.lines, (number, text)))
        stripped = text.strip()
        continues = stripped.endswith("\\") or (continues and (not stripped or stripped.startswith("#")))
    return instructions


def is_dockerfile(block: Block) -> bool:
    """Whether a block is a Dockerfile, by its language or its first instruction."""
    first = next((text for _, text in block.lines if text.strip() and not text.lstrip().startswith("#")), "")
    return block.language in ("dockerfile", "docker", "containerfile") or bool(
        re.match(r"FROM\s+\S+(\s+AS\s+\S+)?\s*$", first, re.IGNORECASE)
    )
