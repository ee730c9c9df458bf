"""Remedies as commands of the tool that owns a manifest: what `uv pip install` adds, its next sync removes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, Remedy, Step, Uninstall, UserCommand, remedy_of

TORCH_INDEX = "https://download.pytorch.org/whl/{}"
_SECTION = re.compile(r"\s*\[+([^\]]+)\]+")
_KEY = re.compile(r"\s*[\"']?([\w.-]+)[\"']?\s*=\s*\[")


class Tool(NamedTuple):
    """The commands of a tool: `add` and `remove` take requirements or names."""

    add: str
    remove: str
    index_option: str = ""  # adds the PyTorch index; empty if the tool has none


_UV = Tool("uv add", "uv remove", "--index pytorch-{0}=" + TORCH_INDEX)
_PIXI_CONDA = Tool("pixi add", "pixi remove")
_TOOLS = {
    "uv.lock": _UV,
    "poetry.lock": Tool("poetry add", "poetry remove"),
    "pdm.lock": Tool("pdm add", "pdm remove"),
    "Pipfile.lock": Tool("pipenv install", "pipenv uninstall"),
    "pixi.lock": Tool("pixi add --pypi", "pixi remove --pypi"),
    "Pipfile": Tool("pipenv install", "pipenv uninstall"),
    "pixi": Tool("pixi add --pypi", "pixi remove --pypi"),
}
# Locks that are written from another file, lists, and conda's files: no command of a tool changes them.
_WITHOUT_COMMANDS = frozenset({"pylock.toml", "conda-lock", "conda list", "conda", "setup.cfg"})


def tool_of_pyproject(text: str) -> Tool:
    """The tool that a pyproject.toml is for."""
    if re.search(r"^\[tool\.poetry(?:\.dependencies)?\]", text, re.MULTILINE):
        return _TOOLS["poetry.lock"]
    return _TOOLS["pdm.lock"] if re.search(r"^\[tool\.pdm[.\]]", text, re.MULTILINE) else _UV


def project_remedies(finding: Finding, kind: str, text: str = "", name: str = "", origin: str = "") -> Finding:
    """The finding with remedies that change the project. Formats without a tool of their own keep theirs.

    `origin` is "conda" if a lock has the package from a channel of conda.
    """
    if kind == "conda" and (remedies := _edits(finding, text, name)):
        return replace(finding, remedies=remedies)
    if kind in _WITHOUT_COMMANDS:
        return replace(finding, remedies=_without_installs(finding.remedies))
    tool = tool_of_pyproject(text) if kind == "pyproject" else _TOOLS.get(kind)
    if tool is None:
        return finding
    header, place = _place(text, finding.line) if kind in ("pyproject", "pixi") else ("", "")
    if "pixi" in tool.add and (origin == "conda" or re.search(r"(?<!pypi-)dependencies$", header)):
        tool = _PIXI_CONDA
    return replace(finding, remedies=_converted(finding.remedies, lambda step: _tool_step(step, tool, place)))


def _converted(remedies: Sequence[Remedy], convert: Callable[[Step], Step | None]) -> tuple[Remedy, ...]:
    """The remedies of which each step has a form for the project."""
    changed = [[convert(step) for step in remedy.steps] for remedy in remedies]
    return tuple(remedy_of([step for step in steps if step]) for steps in changed if steps and all(steps))


def _without_installs(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    return _converted(remedies, lambda step: None if isinstance(step, Install | Uninstall) or _is_uv(step) else step)


def _is_uv(step: Step) -> bool:
    return isinstance(step, UserCommand) and step.command.startswith("uv ")


def _tool_step(step: Step, tool: Tool, place: str) -> Step | None:
    """The step with the tool. `place` are options that select the part of the manifest."""
    if isinstance(step, Uninstall):
        return UserCommand(command=" ".join([tool.remove, *place.split(), *map(shlex.quote, step.packages)]))
    if not isinstance(step, Install):
        return None if _is_uv(step) and tool is not _UV else step
    if step.reinstall or step.from_source or step.variables or (step.backend and not tool.index_option):
        return None
    is_build = step.backend and step.backend != "auto"
    options = [tool.index_option.format(step.backend)] if is_build else []
    return UserCommand(command=" ".join([tool.add, *place.split(), *map(shlex.quote, step.packages), *options]))


def _place(text: str, line: int) -> tuple[str, str]:
    """The table of a line, and the options of `uv add` and `pixi add` for its group, extra or feature."""
    lines = text.split("\n")[:line]
    header = next((found[1].strip() for each in reversed(lines) if (found := _SECTION.match(each))), "")
    key = next((found[1] for each in reversed(lines) if (found := _KEY.match(each))), "")
    options = ""
    if feature := re.match(r"(?:tool\.pixi\.)?feature\.[\"']?([\w-]+)", header):
        options = f"--feature {feature[1]}"
    elif header == "dependency-groups" and key:
        options = "--dev" if key == "dev" else f"--group {key}"
    elif header == "project.optional-dependencies" and key:
        options = f"--optional {key}"
    elif group := re.match(r"tool\.poetry\.group\.([\w-]+)\.dependencies", header):
        options = f"--group {group[1]}"
    return header, options


def _edits(finding: Finding, text: str, name: str) -> tuple[Remedy, ...]:
    """Changes of the line of a conda environment, and the update of the environment."""
    lines = text.split("\n")
    line = lines[finding.line - 1] if 0 < finding.line <= len(lines) else ""
    found = []
    for remedy in finding.remedies:
        step = remedy.steps[0] if len(remedy.steps) == 1 else None
        if not isinstance(step, Install) or len(step.packages) != 1 or step.backend:
            continue
        (new,) = step.packages
        package = re.escape(re.split(r"[^\w.-]", new)[0])
        old = re.search(rf"-\s+[\"']?({package}(?![\w.-])[^\"'#]*?)\s*[\"']?\s*(?:#.*)?$", line)
        if old and not re.search(r"[|&\\]", old[1] + new):
            pattern = re.sub(r"([.\[\]*^$])", r"\\\1", old[1])  # a basic regular expression
            edit = f"sed -i {shlex.quote(f'{finding.line}s|{pattern}|{new}|')} {shlex.quote(name)}"
            update = f"conda env update --file {shlex.quote(name)}"
            found.append(remedy_of([UserCommand(command=edit), UserCommand(command=update)]))
    return tuple(found)
