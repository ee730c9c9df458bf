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


class CachedToml(msgspec.Struct, frozen=True, array_like=True):
    """The values of a TOML file, and the file that they were read from."""

    identity: tuple[str, str, int, int]  # envdoctor's version, path, size, modification time in ns
    values: dict[str, Any]


def read_bundled_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file. The cache is read only if this user wrote it; errors while writing are ignored."""
    status = path.stat()
    identity = __version__, str(path), status.st_size, status.st_mtime_ns
    name = f"{path.stem}-{zlib.crc32(os.fsencode(path)):08x}.json"  # of several installations, each has its own
    entry = cache_directory() / "tables" / name
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError), entry.open("rb") as file:
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            cached = msgspec.json.decode(file.read(), type=CachedToml)
            if cached.identity == identity:
                return cached.values
    import tomllib

    values = tomllib.loads(path.read_text(encoding="utf-8"))
    with contextlib.suppress(OSError, TypeError):
        _write(entry, msgspec.json.encode(CachedToml(identity, values)))
    return values


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
