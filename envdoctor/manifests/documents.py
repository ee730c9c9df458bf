"""Files that a guide writes out: environment.yml, pyproject.toml, Dockerfile."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from envdoctor.manifests.markdown import Block, Line
from envdoctor.manifests.requirement import Wanted, parse_conda, parse_wanted

_ITEM = re.compile(r"(\s*)-\s*(.*)")
_INSTRUCTION = re.compile(r"\s*(FROM|RUN|ENV|ARG|SHELL|COPY|ADD|CMD|ENTRYPOINT)\s+(.*)", re.IGNORECASE)


class CondaFile(NamedTuple):
    """An environment.yml."""

    name: str
    channels: list[str]
    packages: list[Wanted]
    pip: list[Wanted]
    options: list[str]  # `--extra-index-url X` among the pip lines


def described_environment(lines: tuple[Line, ...]) -> CondaFile:
    """The parts of an environment.yml, read line by line, since guides abridge and misindent them.

    name: grpo / channels: [pytorch, nvidia] / dependencies: - python=3.11 - pip: - trl==0.23.1
    """
    found = CondaFile("", [], [], [], [])
    section, pip_indent = "", -1
    for number, raw in lines:
        text = raw.partition(" #")[0].rstrip()
        head = re.match(r"(\w+):\s*(.*)", text)
        if head:
            section, pip_indent = head[1], -1
            if section == "name":
                found = found._replace(name=head[2].strip())
            elif section == "channels":
                found.channels.extend(part.strip() for part in head[2].strip("[] ").split(",") if part.strip())
            continue
        item = _ITEM.fullmatch(text)
        if not item:
            continue
        indent, value = len(item[1].expandtabs()), item[2].strip().strip("'\"")
        if section == "channels":
            found.channels.append(value)
        elif section == "dependencies" and value == "pip:":
            pip_indent = indent
        elif section == "dependencies":
            _add(found, number, value, in_pip=0 <= pip_indent < indent)
    return found


def _add(found: CondaFile, number: int, value: str, *, in_pip: bool) -> None:
    if in_pip and value.startswith("-"):
        found.options.extend(value.split())
        return
    each = parse_wanted(value, number) if in_pip else parse_conda(value, number)
    if each:
        (found.pip if in_pip else found.packages).append(each)


class Project(NamedTuple):
    """A pyproject.toml: its requirements, and what [tool.uv] says of indexes."""

    wanted: list[Wanted]
    indexes: dict[str, str]  # name -> address
    sources: dict[str, str]  # package -> index name
    python: str


def described_project(block: Block) -> Project | None:
    """The requirements of a pyproject.toml; None where it cannot be read as TOML."""
    import tomllib

    try:
        data: dict[str, Any] = tomllib.loads(block.text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    project, uv = _table(data, "project"), _table(_table(data, "tool"), "uv")
    texts = [text for text in _list(project.get("dependencies")) if isinstance(text, str)]
    for extra in _table(project, "optional-dependencies").values():
        texts += [text for text in _list(extra) if isinstance(text, str)]
    indexes = {
        str(row.get("name", "")): str(row.get("url", "")) for row in _list(uv.get("index")) if isinstance(row, dict)
    }
    sources = {}
    for name, rows in _table(uv, "sources").items():
        row = next((each for each in (rows if isinstance(rows, list) else [rows]) if isinstance(each, dict)), {})
        if "index" in row:
            sources[name] = str(row["index"])
    wanted = [each for text in texts if (each := parse_wanted(text, _line_of(block, text)))]
    return Project(wanted, indexes, sources, str(project.get("requires-python", "")))


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _line_of(block: Block, text: str) -> int:
    return next((number for number, line in block.lines if text in line), block.lines[0][0] if block.lines else 0)


class Instruction(NamedTuple):
    """One instruction of a Dockerfile. `lines` keep their numbers, continuations included."""

    name: str
    lines: tuple[Line, ...]


def dockerfile_instructions(lines: tuple[Line, ...]) -> list[Instruction]:
    """`RUN pip install torch && \\` and its continuation lines as one instruction."""
    found: list[Instruction] = []
    goes_on = False
    for number, text in lines:
        start = None if goes_on else _INSTRUCTION.fullmatch(text)
        if start:
            found.append(Instruction(start[1].upper(), ((number, start[2]),)))
        elif found and (goes_on or not text.lstrip().startswith("#")):
            found[-1] = found[-1]._replace(lines=(*found[-1].lines, (number, text)))
        bare = text.rstrip()
        goes_on = bare.endswith("\\") or (goes_on and (not bare or bare.lstrip().startswith("#")))
    return found


def is_dockerfile(block: Block) -> bool:
    """Whether the code is a Dockerfile, by its language or its first instruction."""
    first = next((text for _, text in block.lines if text.strip() and not text.lstrip().startswith("#")), "")
    return block.language in ("dockerfile", "docker", "containerfile") or bool(
        re.match(r"FROM\s+\S+(\s+AS\s+\S+)?\s*$", first, re.IGNORECASE)
    )
