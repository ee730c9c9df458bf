"""The one way to read a file that a stranger may have written: regular files only, and bounded in size.

A FIFO never opens, a device never ends, and a sparse file of 20 GB takes one block on disk.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import stat
from pathlib import Path
from typing import BinaryIO

from envdoctor.core.patterns import lazy_pattern

SMALL_FILE_BYTES = 4 << 20  # far more than any profile, lock, machine file or record of an install
FIRST_BYTE_SECONDS = 20  # until a program writes to a pipe that is read
STANDARD_STREAMS = ("/dev/stdout", "/dev/stderr")
OWN_DESCRIPTOR = lazy_pattern(r"/(?:dev|proc/self)/fd/(\d{1,9})")
LISTING_BYTES = 64 << 20  # RECORD of the largest wheel has 3 MB; a log that is read as a whole


class UnsuitableFile(OSError):  # noqa: N818  the name states the problem
    """The path is no regular file, is too large, or leads out of its folder."""

    def __init__(self, reason: str, path: Path | str) -> None:
        super().__init__(errno.EPERM, reason, os.fspath(path))


def read_file(path: Path | str, limit: int = SMALL_FILE_BYTES, *, inside: Path | None = None) -> bytes:
    """The content of a regular file of at most `limit` bytes. OSError for any other, without waiting.

    `inside`: the folder in which the file must lie after its links are resolved.
    """
    if inside and not _is_inside(path, inside):
        raise UnsuitableFile(f"a link to a file outside of {inside}", path)
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise UnsuitableFile(f"a file of {size} bytes, more than {limit}", path)
        data = file.read(limit + 1)  # files of /proc have no size, and a file can grow while it is read
    if len(data) > limit:
        raise UnsuitableFile(f"a file of more than {limit} bytes", path)
    return data


def _is_inside(path: Path | str, folder: Path) -> bool:
    """Whether a path lies in a folder after its links are resolved."""
    parent, name = os.path.split(path)
    if parent == os.fspath(folder) and name not in ("", "..") and not os.path.islink(path):  # noqa: PTH114
        return True  # both paths have the same links
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def open_file(path: Path | str) -> BinaryIO:
    """Open a regular file. OSError for any other, without waiting for a writer."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return open(handle, "rb")  # noqa: PTH123
    os.close(handle)
    raise UnsuitableFile("not a regular file", path)


def open_pipe(path: Path | str) -> BinaryIO:
    """Open a FIFO or a pipe. Raises TimeoutError, which is an OSError, if nobody writes to it for a while."""
    own = OWN_DESCRIPTOR.fullmatch(os.fspath(path))  # a process substitution; if reopened, its end would not be seen
    handle = os.dup(int(own[1])) if own else os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(FIRST_BYTE_SECONDS * 1000):
        os.close(handle)
        raise TimeoutError(errno.ETIMEDOUT, f"nothing was written to this pipe for {FIRST_BYTE_SECONDS} s", path)
    os.set_blocking(handle, True)
    return open(handle, "rb")  # noqa: PTH123


def read_file_text(path: Path | str, limit: int = SMALL_FILE_BYTES) -> str:
    """The text of a regular file; bytes that are not UTF-8 are replaced."""
    return read_file(path, limit).decode("utf-8", "replace")


def decode_text(data: bytes, errors: str = "strict") -> str:
    """UTF-8, or what a byte order mark names: PowerShell writes UTF-16 with `>`."""
    encodings = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
                 (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
    return data.decode(next((name for mark, name in encodings if data.startswith(mark)), "utf-8-sig"), errors)


def read_file_head(path: Path | str, size: int) -> bytes:
    """The first bytes of a regular file of any length."""
    with open_file(path) as file:
        return file.read(size)


def is_stream(path: Path) -> bool:
    """Whether the path is a pipe, a device or a standard stream, to which is written instead of replacing it."""
    if os.fspath(path) in STANDARD_STREAMS or OWN_DESCRIPTOR.fullmatch(os.fspath(path)):
        return True
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def write_stream(path: Path, data: bytes) -> None:
    """Write to a pipe or a device. OSError for a FIFO that nobody reads, without waiting."""
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    os.set_blocking(handle, True)
    with open(handle, "wb") as file:  # noqa: PTH123
        file.write(data)


def write_whole(path: Path, data: bytes, *, replace: bool, mode: int | None = None) -> None:
    """Write a file completely or not at all. Raises FileExistsError for an existing path unless it is replaced.

    A link is replaced itself: the file that it names stays as it is.
    """
    if os.path.lexists(path) and (not replace or path.is_dir()):
        raise (IsADirectoryError if path.is_dir() else FileExistsError)(
            errno.EISDIR if path.is_dir() else errno.EEXIST, "Is a directory" if path.is_dir() else "exists", path
        )
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(handle, mode)
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            _link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    """Give a file its name unless the name is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "exists", path) from None
        temporary.rename(path)
