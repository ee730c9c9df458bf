"""Cache of compiled files, keyed by file identity, so that an unchanged file is not read again.

All environments share one cache file: hard links from uv's cache have one inode and therefore one entry. The file is
read and written as a whole. A damaged file counts as empty. With concurrent writers, the last one wins.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from envdoctor.core.cached_files import keep
from envdoctor.core.files import LISTING_BYTES, read_file
from envdoctor.core.records import KernelCode

FILE_NAME = "stack-files-3.msgpack"  # increase the number when CompiledFile changes
MAX_ENTRIES = 8000  # a dozen large environments, 4 MB


class CompiledFile(msgspec.Struct, frozen=True, array_like=True):
    """The contents of one compiled file, independent of the rest of the environment."""

    problem: str = ""  # why it could not be read
    foreign: bool = False  # that is no damage: a linker script, or a file for another platform
    machine: str = ""
    needed: tuple[str, ...] = ()
    soname: str = ""
    search_path: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    glibc: str = ""
    glibcxx: str = ""
    code: KernelCode | None = None


def identity(status: os.stat_result) -> str:
    """Device, inode, size and modification time of a file."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


class FileCache:
    """Compiled files by identity. With `folder` None, nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE_NAME if folder else None
        self._stored = _read(self._path)
        self._used: dict[str, CompiledFile] = {}
        self._changed = False

    def get(self, key: str) -> CompiledFile | None:
        """The entry of a file, or None."""
        entry = self._stored.get(key)
        if entry is not None:
            self._used[key] = entry
        return entry

    def put(self, key: str, file: CompiledFile) -> None:
        """Add the entry of a file."""
        self._used[key] = file
        self._changed = True

    def save(self) -> None:
        """Write a temporary file and rename it, if there are new entries; errors of the file system are ignored."""
        if self._path is None or not self._changed:
            return
        unused = [(key, file) for key, file in self._stored.items() if key not in self._used]
        free_entries = max(0, MAX_ENTRIES - len(self._used))
        # The least recently used entries come first and are dropped first.
        entries = dict(unused[-free_entries:] if free_entries else []) | self._used
        keep(self._path, msgspec.msgpack.encode(entries))


def _read(path: Path | None) -> dict[str, CompiledFile]:
    if path is None:
        return {}
    try:
        return msgspec.msgpack.decode(read_file(path, LISTING_BYTES), type=dict[str, CompiledFile])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
