"""Where an environment keeps its things: kind, interpreter, version, folders of packages, headers.

The order of the folders is that of sys.path (CPython's site.py, and Debian's patch of it): PYTHONPATH, then for a
venv its own folder before the user's and the system's, for any other Python the user's folder before its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from envdoctor.binaries.elf import ElfError, open_elf
from envdoctor.core.paths import follow, is_file, is_folder
from envdoctor.core.records import Fact, absent, known, unreadable


class Folder(NamedTuple):
    """One folder of packages on sys.path."""

    path: Path
    role: str  # own, user, system, PYTHONPATH


class Layout(NamedTuple):
    """An environment before anything in it is read."""

    kind: Fact[str]
    prefix: Path
    base: Path  # prefix of the Python that a venv was made from; `prefix` itself for any other
    interpreter: Fact[str]
    version: Fact[str]
    folders: tuple[Folder, ...]
    headers: Fact[bool]


def read_layout(place: Path, environ: Mapping[str, str]) -> Layout:
    """The layout of an environment (a folder) or of an interpreter outside of any."""
    if is_folder(place):
        settings = _read_settings(place / "pyvenv.cfg")
        return (
            _venv_layout(place, settings, environ) if settings is not None else _own_layout(place, "conda", environ)
        )
    real = follow(place)
    prefix = real.parent.parent
    return _own_layout(prefix, "system", environ, interpreter=place, minor=_minor_in(real.name))


def parse_settings(text: str) -> dict[str, str]:
    """Settings of a pyvenv.cfg: `home = /usr/bin` and the like, keys in lower case."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, value in pairs}


def _read_settings(path: Path) -> dict[str, str] | None:
    try:
        return parse_settings(path.read_text(errors="replace"))
    except FileNotFoundError:
        return None
    except OSError:
        return {}


def _venv_layout(prefix: Path, settings: dict[str, str], environ: Mapping[str, str]) -> Layout:
    home = Path(settings.get("home") or "/nonexistent")
    interpreter = prefix / "bin/python"
    base = _base_of(interpreter, home)
    minor = _minor_below(prefix) or _minor_in(settings.get("version_info") or settings.get("version", ""))
    folders = [*_python_path(environ), *_site_folders(prefix, minor, "own")]
    if settings.get("include-system-site-packages", "").lower() == "true":
        folders += [*_user_folder(minor, environ), *_site_folders(base, minor, "system")]
    version = _full_version(settings.get("version_info") or settings.get("version", ""))
    source = f"{prefix}/pyvenv.cfg"
    return Layout(
        kind=known("venv", source),
        prefix=prefix,
        base=base,
        interpreter=_interpreter_fact(interpreter),
        version=known(version, source) if version else _version_of(base, minor),
        folders=tuple(folders),
        headers=_headers_fact((base, prefix), minor),
    )


def _own_layout(
    prefix: Path, kind: str, environ: Mapping[str, str], *, interpreter: Path | None = None, minor: str = ""
) -> Layout:
    """A Python that stands for itself: conda's, the system's, pyenv's."""
    program = interpreter or prefix / "bin/python"
    minor = minor or _minor_in(follow(program).name) or _minor_below(prefix)
    folders = [*_python_path(environ), *_user_folder(minor, environ), *_site_folders(prefix, minor, "own")]
    return Layout(
        kind=known(kind, f"{prefix}/conda-meta" if kind == "conda" else str(program)),
        prefix=prefix,
        base=prefix,
        interpreter=_interpreter_fact(program),
        version=_version_of(prefix, minor),
        folders=tuple(folders),
        headers=_headers_fact((prefix,), minor),
    )


def _minor_in(text: str) -> str:
    """The first 3.x in a text: `python3.12` and `3.12.1` give "3.12"."""
    found = re.search(r"3\.\d+", text)
    return found[0] if found else ""


def _full_version(text: str) -> str:
    """`3.12.1` and virtualenv's `3.12.1.final.0` give "3.12.1"; `3.12` alone is no full version."""
    found = re.match(r"3\.\d+\.\d+", text)
    return found[0] if found else ""


def _minor_below(prefix: Path) -> str:
    """The Python version that the folders below lib name; the newest of several."""
    names = [
        path.parent.name
        for path in (*prefix.glob("lib/python3.*/site-packages"), *prefix.glob("lib/python3.*/os.py"))
    ]
    return max(map(_minor_in, names), key=lambda minor: int(minor[2:] or 0), default="")


def _base_of(interpreter: Path, home: Path) -> Path:
    """Prefix of the base Python: `home` of pyvenv.cfg, or where the link of bin/python ends if that is gone."""
    if is_folder(home):
        return home.parent
    return follow(interpreter).parent.parent


def _python_path(environ: Mapping[str, str]) -> list[Folder]:
    return [Folder(Path(part), "PYTHONPATH") for part in environ.get("PYTHONPATH", "").split(":") if part]


def _user_folder(minor: str, environ: Mapping[str, str]) -> list[Folder]:
    if environ.get("PYTHONNOUSERSITE") or not minor:
        return []
    base = Path(environ.get("PYTHONUSERBASE") or Path(environ.get("HOME") or Path.home(), ".local"))
    return [Folder(base / f"lib/python{minor}/site-packages", "user")]


def _site_folders(prefix: Path, minor: str, role: str) -> list[Folder]:
    """Folders of packages below a prefix, each once: Debian's dist-packages, Fedora's lib64 and the common one."""
    names = [f"lib/python{minor}/site-packages", f"lib64/python{minor}/site-packages"]
    if prefix == Path("/usr"):
        names = [f"local/lib/python{minor}/dist-packages", "lib/python3/dist-packages",
                 f"lib/python{minor}/dist-packages", f"local/lib/python{minor}/site-packages", *names]  # fmt: skip
    found: dict[Path, Folder] = {}
    for name in names:
        path = prefix / name
        if is_folder(path):
            found.setdefault(follow(path), Folder(path, role))
    return list(found.values())


def _interpreter_fact(path: Path) -> Fact[str]:
    try:
        path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            return absent(str(path), f"a link to {path.readlink()}, which is not there")
        return absent(str(path))
    except OSError as error:
        return unreadable(str(path), error.strerror or str(error))
    return known(str(path), str(path))


def _version_of(prefix: Path, minor: str) -> Fact[str]:
    """Full version of a Python: its header, conda's record or the program itself; else the minor version."""
    header = prefix / f"include/python{minor}/patchlevel.h"
    try:
        found = re.search(r'#define PY_VERSION\s+"([^"]+)"', header.read_text(errors="replace"))
        if found:
            return known(found[1].rstrip("+"), str(header))
    except OSError:
        pass
    for record in prefix.glob(f"conda-meta/python-{minor}.*.json"):
        return known(record.name.split("-")[1], str(record))
    libraries = (
        prefix / folder / f"libpython{minor}.so.1.0"
        for folder in ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu")
    )
    for program in (prefix / f"bin/python{minor}", *libraries):
        if version := _version_inside(program, minor):
            return known(version, str(program))
    return known(minor, str(prefix)) if minor else unreadable(str(prefix), "no Python found below it")


def _version_inside(program: Path, minor: str) -> str:
    """The version text (PY_VERSION) inside a Python program."""
    try:
        with open_elf(program) as elf:
            found = re.search(rb"\0(" + re.escape(minor.encode()) + rb"\.\d+)\+?\0", elf.data)
            return found[1].decode() if found else ""
    except ElfError:
        return ""


def _headers_fact(prefixes: tuple[Path, ...], minor: str) -> Fact[bool]:
    places = [prefix / f"include/python{minor}/Python.h" for prefix in prefixes]
    found = next((place for place in places if is_file(place)), None)
    return known(found is not None, str(found or places[0]))
