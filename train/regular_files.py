"""Read a small file that a user named: a regular file, and bounded in size. Standard library only.

A FIFO never opens, a device never ends, and a sparse file of 20 GB takes one block on disk.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular_file(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes. Raise OSError for any other, without waiting."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(handle, "rb") as file:  # noqa: PTH123
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EPERM, "not a regular file", str(path))
        content = file.read(limit + 1) if status.st_size <= limit else b""
    if status.st_size > limit or len(content) > limit:
        raise OSError(errno.EFBIG, f"a file of more than {limit} bytes", str(path))
    return content
