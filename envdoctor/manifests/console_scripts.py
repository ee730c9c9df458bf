"""The programs that an installation of a project puts on PATH: the entry points that its files state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.files import Files
from envdoctor.manifests.program_launches import Program
from envdoctor.manifests.pyproject import table
from envdoctor.manifests.shell_records import Command

_GROUPS = ("console_scripts", "gui_scripts")
_OBJECT = lazy_pattern(r"([A-Za-z_]\w*(?:\.\w+)*)\s*:\s*([A-Za-z_]\w*(?:\.\w+)*)\s*(?:\[.*\])?")
_STATED = lazy_pattern(r"([\w.-]{1,60})\s*=\s*([A-Za-z_][\w.]{0,200}\s*:\s*[A-Za-z_][\w.]{0,100})")


def console_scripts(files: Files) -> dict[str, Program]:
    """The programs of the project of a text, by their names."""
    return stated_scripts({name: "\n".join(line for _, line in files.of_project(name, 0)) for name, _ in _READERS})


def stated_scripts(texts: Mapping[str, str]) -> dict[str, Program]:
    """The programs that the texts of pyproject.toml, setup.cfg and setup.py state, by their names."""
    stated = chain.from_iterable(read(texts[name]) for name, read in _READERS if texts.get(name))
    found: dict[str, Program] = {}
    for name, reference in stated:
        if match := _OBJECT.fullmatch(reference.strip()):
            found.setdefault(name, Program(module=match[1], function=match[2]))
    return found


def started_console_script(command: Command, scripts: Mapping[str, Program]) -> Program | None:
    """The console script that a command starts, also with `uv run`; None for other commands."""
    words = unwrap(command).words
    words = _after_uv_run(words, scripts) if words[:2] == ("uv", "run") else words
    program = scripts.get(words[0]) if words else None
    return program and program._replace(arguments=words[1:])


def _after_uv_run(words: tuple[str, ...], scripts: Mapping[str, Program]) -> tuple[str, ...]:
    """The words of `uv run` from the name of a console script on. A word after an option can be its value."""
    for index, word in enumerate(words[2:], 2):
        if word in scripts:
            return words[index:]
        if not word.startswith("-") and not words[index - 1].startswith("-"):
            break
    return ()


def _of_pyproject(text: str) -> Iterator[tuple[str, str]]:
    import tomllib

    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return
    project, poetry = table(data, "project"), table(table(data, "tool"), "poetry")
    for scripts in (table(project, "scripts"), table(project, "gui-scripts"), table(poetry, "scripts")):
        yield from ((name, _reference(value)) for name, value in scripts.items())


def _reference(value: Any) -> str:
    """The reference of a script; that of Poetry can be in a table."""
    stated = (value.get("reference") or value.get("callable")) if isinstance(value, dict) else value
    return stated if isinstance(stated, str) else ""


def _of_setup_cfg(text: str) -> Iterator[tuple[str, str]]:
    from configparser import ConfigParser, Error

    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except Error:
        return
    for group in _GROUPS:
        yield from _STATED.findall(parser.get("options.entry_points", group, fallback=""))


def _of_setup_py(text: str) -> Iterator[tuple[str, str]]:
    yield from _STATED.findall(text) if any(group in text for group in _GROUPS) else ()


_READERS = (("pyproject.toml", _of_pyproject), ("setup.cfg", _of_setup_cfg), ("setup.py", _of_setup_py))
