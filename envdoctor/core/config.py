"""Defaults of options: environment variables, the project's pyproject.toml, and the user's config.toml.

The command line precedes ENVDOCTOR_KEY, which precedes `[tool.envdoctor]` of the nearest parent directory, which
precedes `$XDG_CONFIG_HOME/envdoctor/config.toml`. A project may be a stranger's repository: it can neither name a
program nor a file outside of its directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from envdoctor.core.decoding import parse_toml, read_text
from envdoctor.core.directories import config_directory
from envdoctor.core.errors import BadInput, closest_match
from envdoctor.core.files import read_file
from envdoctor.core.paths import exists, expand_home, resolve_links
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.core.toml_lines import find_line

PREFIX = "ENVDOCTOR_"
TABLE = "tool.envdoctor"
EXPECTED = "the configuration of envdoctor"
NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*")

ConfigValue = str | bool | tuple[str, ...]
Level = Literal["environment", "project", "user"]


class Key(Record, frozen=True):
    """A key of the configuration."""

    help: str
    kind: Literal["path", "name", "list", "flag"] | tuple[str, ...] = "name"  # a tuple: the valid values
    in_projects: bool = True


KEYS = {
    "venv": Key("The directory of the environment.", "path"),
    "python": Key("The environment's interpreter.", "path", in_projects=False),
    "profile": Key("The profile of install, quickstart, export and fetch."),
    "machine": Key("The machine of plan and resolve: a name or a file."),
    "ignore": Key("Rules that check does not report, by id or prefix.", "list"),
    "format": Key("Output format.", ("human", "json", "github", "sarif")),
    "color": Key("When to use colours.", ("auto", "always", "never")),
    "resolve": Key("When audit resolves with uv.", ("auto", "always", "never")),
    "quiet": Key("Print no progress.", "flag"),
    "verbose": Key("Print all details.", "flag"),
}


class Setting(Record, frozen=True):
    """The value of a key, and where it comes from: a variable, or a file with its line."""

    key: str
    value: ConfigValue
    level: Level
    source: str


def read_config(directory: Path, environ: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """The effective value of each key that is set. Raises BadInput for an unknown key or an invalid value."""
    found: dict[str, Setting] = {}
    user = user_config_file(environ)
    if exists(user):
        found |= _read_table(user, "", "user")
    if project := project_config_file(directory):
        found |= _read_table(project, TABLE, "project")
    for key in KEYS:
        if text := environ.get(PREFIX + key.upper()):
            found[key] = _from_variable(key, text)
    return _without_alternative(found)


def user_config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's file."""
    return config_directory(environ) / "config.toml"


def project_config_file(directory: Path) -> Path | None:
    """The nearest pyproject.toml with the table `[tool.envdoctor]`."""
    for folder in (directory, *directory.parents):
        file = folder / "pyproject.toml"
        try:
            if re.search(rb"^\s*\[\s*tool\s*\.\s*envdoctor\b", read_file(file), re.MULTILINE):
                return file
        except OSError:
            continue
    return None


def _read_table(file: Path, table: str, level: Level) -> dict[str, Setting]:
    hint = f"edit {file}"
    text = read_text(file, expected=EXPECTED, hint=hint)
    values: Any = parse_toml(text, source=str(file), expected=EXPECTED, hint=hint)
    for name in table.split(".") if table else ():
        values = values[name]
    found = {}
    for key, value in values.items():
        source = f"{file}, line {find_line(text, f'{table}.{key}' if table else key)}"
        if key not in KEYS:
            close = closest_match(key, list(KEYS))
            raise BadInput(
                f"{source}: unknown key {key}",
                expected=f"one of {', '.join(KEYS)}",
                hint=f"did you mean {close}?" if close else hint,
            )
        checked = _check(key, value, source, hint)
        if level == "project":
            _check_project(key, checked, file, source)
        found[key] = Setting(key, _resolve_path(key, checked, file.parent), level, source)
    return found


def _from_variable(key: str, text: str) -> Setting:
    kind, source = KEYS[key].kind, PREFIX + key.upper()
    value: Any = text
    if kind == "list":
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif kind == "flag":
        value = {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    return Setting(key, _check(key, value, source, shell_command("unset {}", source)), "environment", source)


def _check(key: str, value: Any, source: str, hint: str) -> ConfigValue:
    """The value with its type checked."""
    kind = KEYS[key].kind
    expected = "a text that is not empty"
    if isinstance(kind, tuple):
        valid, expected = value in kind if isinstance(value, str) else False, f"one of {', '.join(kind)}"
    elif kind == "flag":
        valid, expected = isinstance(value, bool), "true or false"
    elif kind == "list":
        valid = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
        expected = "a list of texts"
    else:
        valid = isinstance(value, str) and value != "" and value.isprintable()
    if not valid:
        raise BadInput(f"{source}: {key} is {value!a}", expected=expected, hint=hint)
    return tuple(value) if isinstance(value, list) else value


def _check_project(key: str, value: ConfigValue, file: Path, source: str) -> None:
    """Refuse what a stranger's repository must not decide."""
    if not KEYS[key].in_projects:
        raise BadInput(
            f"{source}: {key} names a program, which a project cannot do",
            expected=f"{key} in {user_config_file()}, in {PREFIX}{key.upper()}, or on the command line",
            hint=f"delete {key} from {file}",
        )
    if key in ("profile", "machine") and not NAME.fullmatch(str(value)):
        raise BadInput(
            f"{source}: {key} is {value!a}",
            expected=f"the name of a {key}; a file can be given on the command line",
            hint="envdoctor profiles" if key == "profile" else "envdoctor check --help",
        )
    if key == "venv":
        inside = resolve_links(file.parent / str(value)).is_relative_to(resolve_links(file.parent))
        if not inside or file.stat().st_uid not in (0, os.geteuid()):
            reason = "it belongs to another user" if inside else f"it is outside of {file.parent}"
            raise BadInput(
                f"{source}: venv is {value}, but {reason}",
                expected="a directory below the project, in a file of your own",
                hint=f"delete venv from {file}",
            )


def _resolve_path(key: str, value: ConfigValue, folder: Path) -> ConfigValue:
    """A path of a file is relative to the file's directory."""
    if isinstance(value, str) and (KEYS[key].kind == "path" or (key == "machine" and "/" in value)):
        path = expand_home(value)
        return str(path if key == "python" and "/" not in value else folder / path)
    return value


def _without_alternative(found: dict[str, Setting]) -> dict[str, Setting]:
    """Keep one of venv and python, which both select the environment: the one of the higher level."""
    venv, python = found.get("venv"), found.get("python")
    if venv and python:
        levels: tuple[Level, ...] = ("environment", "project", "user")
        if venv.level == python.level:
            raise BadInput(
                f"{venv.source}: venv, and {python.source}: python",
                expected="venv or python, which both select the environment",
                hint="leave one of them out",
            )
        del found["python" if levels.index(venv.level) < levels.index(python.level) else "venv"]
    return found
