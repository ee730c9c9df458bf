"""The Pythons at hand, found without starting any of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from envdoctor.core.paths import is_file
from envdoctor.core.records import Fact, Interpreter, absent, known

OLDEST = (3, 9)  # no current wheel of these stacks is for an older one
NAME = re.compile(r"python3(\.\d+)?")
REAL_NAME = re.compile(r"python(3\.\d+)")


def read_interpreters(environ: Mapping[str, str] = os.environ) -> Fact[tuple[Interpreter, ...]]:
    """Every Python 3 on PATH, then pyenv's and uv's, each once.

    The version is read off the name that the links end at (`python3.12`); wrappers like pyenv's shims are scripts
    and are passed over, since only running them would tell what they start.
    """
    found: dict[Path, Interpreter] = {}
    for path in _candidates(environ):
        try:
            real = path.resolve(strict=True)
        except OSError:
            continue
        name = REAL_NAME.fullmatch(real.name)
        if not name or real in found or version_key(name[1]) < OLDEST:
            continue
        if os.access(real, os.X_OK) and not _is_script(real):
            found[real] = Interpreter(path=str(real), version=name[1], headers=has_headers(real, name[1]))
    return known(tuple(found.values()), "PATH, pyenv, uv") if found else absent("PATH, pyenv, uv")


def version_key(text: str) -> tuple[int, ...]:
    """The numbers in a name, to compare by: `cpython-3.12.1-linux` gives (3, 12, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def has_headers(interpreter: Path, version: str) -> bool:
    """Whether Python.h lies beside this interpreter (`PREFIX/include/python3.11/Python.h`)."""
    return is_file(interpreter.parent.parent / "include" / f"python{version}" / "Python.h")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    yield Path(sys.executable)
    for directory in environ.get("PATH", "").split(os.pathsep):
        yield from _named_in(Path(directory or "."))
    home = Path(environ.get("HOME") or Path.home())
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    for versions in (pyenv / "versions", uv):
        for folder in sorted(_entries(versions), key=lambda path: version_key(path.name), reverse=True):
            yield from _named_in(folder / "bin")


def _named_in(directory: Path) -> list[Path]:
    return sorted(entry for entry in _entries(directory) if NAME.fullmatch(entry.name))


def _entries(directory: Path) -> list[Path]:
    """What lies in a folder; nothing where it is not there or may not be read."""
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True
