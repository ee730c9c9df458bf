"""What was read of compiled files, kept by file identity, so that an unchanged file is not opened again.

One file for all environments: hard links of uv's cache share their inode, and so their entry. It is read and written
as a whole; a damaged or foreign one counts as empty, and of two that write at the same time the last wins.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec

from envdoctor.core.records import KernelCode

FILE_NAME = "stack-files-2.msgpack"  # the number goes up when CompiledFile changes
LIMIT = 8000  # entries: a dozen large environments, 4 MB


class CompiledFile(msgspec.Struct, frozen=True, array_like=True):
    """One compiled file by itself, without regard to what is installed beside it."""

    problem: str = ""  # why it could not be read
    machine: str = ""
    needed: tuple[str, ...] = ()
    soname: str = ""
    search_path: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    glibc: str = ""
    glibcxx: str = ""
    code: KernelCode | None = None


def identity(status: os.stat_result) -> str:
    """Device, inode, size and time of change of a file."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


class FileCache:
    """Compiled files by identity; `folder` None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE_NAME if folder else None
        self._known = _read(self._path)
        self._used: dict[str, CompiledFile] = {}
        self._changed = False

    def get(self, key: str) -> CompiledFile | None:
        """What is known of a file."""
        found = self._known.get(key)
        if found is not None:
            self._used[key] = found
        return found

    def put(self, key: str, file: CompiledFile) -> None:
        """Keep what was read of a file."""
        self._used[key] = file
        self._changed = True

    def save(self) -> None:
        """Write it beside and rename, if anything is new; a folder that cannot be written is no error."""
        if self._path is None or not self._changed:
            return
        others = [(key, file) for key, file in self._known.items() if key not in self._used]
        room = max(0, LIMIT - len(self._used))
        kept = dict(others[-room:] if room else []) | self._used  # used last stands last, and is dropped last
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, unfinished = tempfile.mkstemp(dir=self._path.parent, prefix=FILE_NAME)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.msgpack.encode(kept))
                Path(unfinished).replace(self._path)
            except OSError:
                Path(unfinished).unlink(missing_ok=True)


def _read(path: Path | None) -> dict[str, CompiledFile]:
    if path is None:
        return {}
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, CompiledFile])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
