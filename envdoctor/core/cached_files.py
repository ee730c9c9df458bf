"""Results in files of the cache directory, for later commands."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from envdoctor.core.directories import cache_directory


def cached_file(folder: str, name: str, suffix: str, identity: str, *, digits: int = 12) -> Path:
    """The path of a result. `identity` distinguishes results of one name: a private index has files of its own."""
    import hashlib  # which loads OpenSSL

    digest = hashlib.sha256(identity.encode()).hexdigest()[:digits]
    return cache_directory() / folder / f"{name}-{digest}.{suffix}"


def keep(path: Path, data: bytes) -> None:
    """Write a result completely or not at all; errors of the file system are ignored."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
