"""The layout of an environment: kind, interpreter, version, package directories, headers.

The directories are in the order of sys.path (CPython's site.py and Debian's patch of it): PYTHONPATH first. In a
venv, its own directory precedes the user site and the system's; in any other Python, the user site precedes its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from envdoctor.binaries.elf import ElfError, open_elf
from envdoctor.core.files import read_file_text
from envdoctor.core.paths import is_file, is_folder, resolve_links
from envdoctor.core.record import Record
from envdoctor.core.records import Fact, absent, known, unreadable


class Folder(Record, frozen=True):
    """One package directory on sys.path."""

    path: Path
    role: str  # own, user, system, PYTHONPATH


class Layout(Record, frozen=True):
    """The paths of an environment, before its packages are read."""

    kind: Fact[str]
    prefix: Path
    base: Path  # prefix of the base Python of a venv; otherwise `prefix`
    interpreter: Fact[str]
    version: Fact[str]
    folders: tuple[Folder, ...]
    headers: Fact[bool]


def read_layout(location: Path, environ: Mapping[str, str]) -> Layout:
    """The layout of an environment (a directory) or of an interpreter outside of any environment."""
    if is_folder(location):
        settings = _read_pyvenv_cfg(location / "pyvenv.cfg")
        if settings is None:
            return _installation_layout(location, "conda", environ)
        return _venv_layout(location, settings, environ)
    resolved = resolve_links(location)
    prefix = resolved.parent.parent
    return _installation_layout(prefix, "system", environ, interpreter=location, minor=_minor_version(resolved.name))


def parse_settings(text: str) -> dict[str, str]:
    """Settings of a pyvenv.cfg such as `home = /usr/bin`, with keys in lower case."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, value in pairs}


def _read_pyvenv_cfg(path: Path) -> dict[str, str] | None:
    try:
        return parse_settings(read_file_text(path))
    except FileNotFoundError:
        return None
    except OSError:
        return {}


def _venv_layout(prefix: Path, settings: dict[str, str], environ: Mapping[str, str]) -> Layout:
    home = Path(settings.get("home") or "/nonexistent")
    interpreter = prefix / "bin/python"
    base = home.parent if is_folder(home) else resolve_links(interpreter).parent.parent
    minor = _minor_below(prefix) or _minor_version(settings.get("version_info") or settings.get("version", ""))
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


def _installation_layout(
    prefix: Path, kind: str, environ: Mapping[str, str], *, interpreter: Path | None = None, minor: str = ""
) -> Layout:
    """The layout of a Python installation: conda, the system's, pyenv's."""
    program = interpreter or prefix / "bin/python"
    minor = minor or _minor_version(resolve_links(program).name) or _minor_below(prefix)
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


def _minor_version(text: str) -> str:
    """The first 3.x in a text: "3.12" for `python3.12` and `3.12.1`."""
    found = re.search(r"3\.\d+", text)
    return found[0] if found else ""


def _full_version(text: str) -> str:
    """Parse `3.12.1` and virtualenv's `3.12.1.final.0` as "3.12.1"; returns "" for `3.12`."""
    found = re.match(r"3\.\d+\.\d+", text)
    return found[0] if found else ""


def _minor_below(prefix: Path) -> str:
    """The newest Python version among the directory names below lib."""
    paths = *prefix.glob("lib/python3.*/site-packages"), *prefix.glob("lib/python3.*/os.py")
    names = [path.parent.name for path in paths]
    return max(map(_minor_version, names), key=lambda minor: int(minor[2:] or 0), default="")


def _python_path(environ: Mapping[str, str]) -> list[Folder]:
    return [Folder(Path(part), "PYTHONPATH") for part in environ.get("PYTHONPATH", "").split(":") if part]


def _user_folder(minor: str, environ: Mapping[str, str]) -> list[Folder]:
    if environ.get("PYTHONNOUSERSITE") or not minor:
        return []
    base = Path(environ.get("PYTHONUSERBASE") or Path(environ.get("HOME") or Path.home(), ".local"))
    return [Folder(base / f"lib/python{minor}/site-packages", "user")]


def _site_folders(prefix: Path, minor: str, role: str) -> list[Folder]:
    """Package directories below a prefix, without duplicates: Debian's, Fedora's lib64, the common one."""
    names = [f"lib/python{minor}/site-packages", f"lib64/python{minor}/site-packages"]
    if prefix == Path("/usr"):
        names = [f"local/lib/python{minor}/dist-packages", "lib/python3/dist-packages",
                 f"lib/python{minor}/dist-packages", f"local/lib/python{minor}/site-packages", *names]  # fmt: skip
    found: dict[Path, Folder] = {}
    for name in names:
        path = prefix / name
        if is_folder(path):
            found.setdefault(resolve_links(path), Folder(path, role))
    return list(found.values())


def _interpreter_fact(path: Path) -> Fact[str]:
    try:
        path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            return absent(str(path), f"a symlink to {path.readlink()}, which does not exist")
        return absent(str(path))
    except OSError as error:
        return unreadable(str(path), error.strerror or str(error))
    return known(str(path), str(path))


def _version_of(prefix: Path, minor: str) -> Fact[str]:
    """Full version of a Python: from its header, conda's record or the program; otherwise the minor version."""
    header = prefix / f"include/python{minor}/patchlevel.h"
    try:
        found = re.search(r'#define PY_VERSION\s+"([^"]+)"', read_file_text(header))
        if found:
            return known(found[1].rstrip("+"), str(header))
    except OSError:
        pass
    for record in prefix.glob(f"conda-meta/python-{minor}.*.json"):
        return known(record.name.split("-")[1], str(record))
    folders = ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu")
    libraries = (prefix / folder / f"libpython{minor}.so.1.0" for folder in folders)
    for program in (prefix / f"bin/python{minor}", *libraries):
        if version := _version_in_binary(program, minor):
            return known(version, str(program))
    return known(minor, str(prefix)) if minor else unreadable(str(prefix), "no Python found below it")


def _version_in_binary(program: Path, minor: str) -> str:
    """The version string (PY_VERSION) in a Python program or library."""
    try:
        with open_elf(program) as elf:
            found = re.search(rb"\0(" + re.escape(minor.encode()) + rb"\.\d+)\+?\0", elf.data)
            return found[1].decode() if found else ""
    except ElfError:
        return ""


def _headers_fact(prefixes: tuple[Path, ...], minor: str) -> Fact[bool]:
    candidates = [prefix / f"include/python{minor}/Python.h" for prefix in prefixes]
    header = next((path for path in candidates if is_file(path)), None)
    return known(header is not None, str(header or candidates[0]))
