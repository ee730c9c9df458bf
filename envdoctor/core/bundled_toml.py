"""TOML files of this package as plain values, with a cache of what tomllib returned.

tomllib is written in Python and takes 20 ms for the tables and profiles of `envdoctor check`. As with Python's own
bytecode, an entry is valid while size and modification time of its file, and envdoctor's version, are unchanged.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec

from envdoctor import __version__
from envdoctor.core.directories import cache_directory
from envdoctor.core.paths import is_folder


class CachedToml(msgspec.Struct, frozen=True, array_like=True):
    """The values of a TOML file, and the file that they were read from."""

    identity: tuple[str, str, int, int]  # envdoctor's version, path, size, modification time in ns
    values: dict[str, Any]


def read_bundled_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file. The cache is read only if this user wrote it; errors while writing are ignored.

    It is written only into an existing cache directory: a command that stores nothing creates no directory.
    """
    status = path.stat()
    identity = __version__, str(path), status.st_size, status.st_mtime_ns
    entry = _entry(path)
    if entry and (cached := _read(entry)) and cached.identity == identity:
        return cached.values
    import tomllib

    values = tomllib.loads(path.read_text(encoding="utf-8"))
    if entry:
        with contextlib.suppress(OSError, TypeError):  # TypeError: a value that JSON does not have
            _write(entry, msgspec.json.encode(CachedToml(identity, values)))
    return values


def _entry(path: Path) -> Path | None:
    """The cache file of a TOML file, with the checksum of its path: several installations share the directory."""
    try:
        folder = cache_directory()
    except RuntimeError:  # a user without a home directory
        return None
    return folder / "tables" / f"{path.stem}-{zlib.crc32(os.fsencode(path)):08x}.json" if is_folder(folder) else None


def _read(entry: Path) -> CachedToml | None:
    try:
        with entry.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            return msgspec.json.decode(file.read(), type=CachedToml)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _write(entry: Path, data: bytes) -> None:
    entry.parent.mkdir(exist_ok=True)
    temporary = entry.with_name(f"{entry.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(entry)
    except OSError:
        temporary.unlink(missing_ok=True)
