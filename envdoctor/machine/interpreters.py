"""Installed Python interpreters, found without starting them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from envdoctor.core.files import open_file
from envdoctor.core.paths import is_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Fact, Interpreter, absent, known
from envdoctor.knowledge.versions import numbers_in

MINIMUM_VERSION = (3, 9)  # current wheels do not support older versions
NAME = lazy_pattern(r"python3(\.\d+)?")
RESOLVED_NAME = lazy_pattern(r"python(3\.\d+)")


def read_interpreters(
    environ: Mapping[str, str] = os.environ, *, oldest: tuple[int, ...] = MINIMUM_VERSION
) -> Fact[tuple[Interpreter, ...]]:
    """Every Python 3 on PATH, then those of pyenv and uv, without duplicates and those older than `oldest`.

    The version is taken from the file name after resolving symlinks (`python3.12`). Scripts such as pyenv's shims are
    ignored, because their version is only known by running them.
    """
    found: dict[Path, Interpreter] = {}
    for path in _candidates(environ):
        try:
            resolved = path.resolve(strict=True)
        except OSError:
            continue
        name = RESOLVED_NAME.fullmatch(resolved.name)
        if not name or resolved in found or numbers_in(name[1]) < oldest:
            continue
        if os.access(resolved, os.X_OK) and not _is_script(resolved):
            found[resolved] = Interpreter(path=str(resolved), version=name[1], headers=has_headers(resolved, name[1]))
    return known(tuple(found.values()), "PATH, pyenv, uv") if found else absent("PATH, pyenv, uv")


def has_headers(interpreter: Path, version: str) -> bool:
    """Whether the interpreter has Python.h (`PREFIX/include/python3.11/Python.h`)."""
    return is_file(interpreter.parent.parent / "include" / f"python{version}" / "Python.h")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    yield Path(sys.executable)
    for directory in environ.get("PATH", "").split(os.pathsep):
        yield from _interpreters_in(Path(directory or "."))
    home = Path(environ.get("HOME") or Path.home())
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    for versions in (pyenv / "versions", uv):
        for folder in sorted(_entries(versions), key=numbers_in, reverse=True):
            yield from _interpreters_in(versions / folder / "bin")


def _interpreters_in(directory: Path) -> list[Path]:
    names = [name for name in _entries(directory) if name.startswith("python3") and NAME.fullmatch(name)]
    return [directory / name for name in sorted(names)]


def _entries(directory: Path) -> list[str]:
    """The names in a directory; empty if it does not exist or cannot be read."""
    try:
        return os.listdir(directory)  # noqa: PTH208  a Path for each of 2,000 programs on PATH takes 3 ms
    except OSError:
        return []


def _is_script(path: Path) -> bool:
    try:
        with open_file(path) as file:
            return file.read(2) == b"#!"
    except OSError:
        return True
