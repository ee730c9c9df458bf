"""The manifest that a lock file is written from, and the command that writes the lock again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.paths import is_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.actions import Install
from envdoctor.manifests.inputs.records import Document

# The command in the header of a file that uv or pip-tools wrote.
_HEADER = lazy_pattern(r"^#\s+((?:uv (?:pip compile|export)|pip-compile)\b[^\n]*)", re.MULTILINE)
_FROZEN = 15  # packages; written by hand, a file of so many pins is rare
_HASH = lazy_pattern(r"^\s*--hash=|\s--hash=", re.MULTILINE)


class LockSource(NamedTuple):
    """The manifest of a lock, if it is there, its usual name, and the command that writes the lock."""

    manifest: Path | None
    expected: str
    command: str
    add: str = ""  # the command that adds a requirement to the manifest and to the lock


class _Lock(NamedTuple):
    manifests: tuple[str, ...]
    command: Callable[[str, str, str], str]  # directory, manifest, lock -> command
    add: str = ""


def _in(command: str, option: str, value: str) -> str:
    """The command with an option for another directory than the current one."""
    return f"{command} {option} {shlex.quote(value)}" if value != "." else command


_LOCKS = {
    "uv.lock": _Lock(("pyproject.toml",), lambda d, *_: _in("uv lock", "--project", d), "uv add"),
    "poetry.lock": _Lock(("pyproject.toml",), lambda d, *_: _in("poetry lock", "--directory", d), "poetry add"),
    "pdm.lock": _Lock(("pyproject.toml",), lambda d, *_: _in("pdm lock --update-reuse", "--project", d), "pdm add"),
    "Pipfile.lock": _Lock(
        ("Pipfile",),
        lambda d, m, _: f"{f'PIPENV_PIPFILE={shlex.quote(m)} ' if d != '.' else ''}pipenv lock",
        "pipenv install",
    ),
    "pixi.lock": _Lock(
        ("pixi.toml", "pyproject.toml"),
        lambda d, m, _: _in("pixi lock", "--manifest-path", m if d != "." else "."),
        "pixi add --pypi",
    ),
    "conda-lock": _Lock(
        ("environment.yml", "environment.yaml"),
        lambda _, m, lock: f"conda-lock lock --file {shlex.quote(m)} --lockfile {shlex.quote(lock)}",
    ),
    "pylock.toml": _Lock(
        ("requirements.in", "requirements.txt"),
        lambda _, m, lock: shell_command("uv pip compile {} --output-file {}", m, lock),
    ),
}


def compile_command(text: str) -> list[str]:
    """The words of the command in the header of a compiled file; empty without one."""
    header = _HEADER.search(text[:2000])
    try:
        return shlex.split(header[1]) if header else []
    except ValueError:
        return []


def has_hashes(text: str) -> bool:
    """Whether a requirements file has hashes of the files, which belong to the versions."""
    return bool(_HASH.search(text))


def is_list(document: Document, text: str) -> bool:
    """Whether a requirements file lists all packages of an environment: compiled, or the output of `pip freeze`."""
    if document.kind != "requirements":
        return False
    listed = [
        each for action in document.paths[0].actions if isinstance(action, Install) for each in action.requirements
    ]
    is_frozen = len(listed) >= _FROZEN and all(each.pin or each.url for each in listed)
    return is_frozen or has_hashes(text) or bool(compile_command(text))


def lock_source(kind: str, path: Path, text: str) -> LockSource:
    """The source of a lock. A compiled file names its own in the header."""
    if words := compile_command(text):
        return _compiled(words, path)
    lock = _LOCKS.get(kind)
    if lock is None:
        return LockSource(None, "", "")
    found = next((each for name in lock.manifests if is_file(each := path.parent / name)), None)
    manifest = found or path.parent / lock.manifests[0]
    command = lock.command(str(path.parent), str(manifest), str(path))
    return LockSource(found, lock.manifests[0], command, lock.add)


def _compiled(words: list[str], path: Path) -> LockSource:
    """The source of a file that a command wrote in the directory of the project."""
    is_export = words[:2] == ["uv", "export"]
    inputs = [
        word for word in words[2 if words[0] == "uv" else 1 :] if re.fullmatch(r"[\w./-]+\.(?:in|txt|toml)", word)
    ]
    named = "pyproject.toml" if is_export else next((word for word in inputs if Path(word).name != path.name), "")
    candidates = [path.parent / named, path.parent.parent / named, path.parent / Path(named).name] if named else []
    found = next((each for each in candidates if is_file(each)), None)
    return LockSource(found, named, shlex.join(words), "uv add" if is_export else "")
