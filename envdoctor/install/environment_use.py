"""Who uses an environment: a training, a verification or a measurement of ours, which a replacement would break.

Each of them has a file in `users/` of the data directory, named after its process and locked while it runs. The lock
ends with the process and with the children that inherit the file, however they end.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from envdoctor.core.errors import Refused
from envdoctor.core.files import read_file_text
from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.environment_lock import environment_lock


@contextmanager
def environment_in_use(python: Path, purpose: str) -> Iterator[tuple[int, ...]]:
    """Mark the environment of an interpreter as used. Yields the files that a child process inherits.

    An environment of another tool or of another user has no data directory that could be written: it is not marked.
    """
    paths = EnvironmentPaths(python.parent.parent)
    path = paths.folder / "users" / str(os.getpid())
    handle = _mark(paths, path, purpose)
    try:
        yield () if handle is None else (handle,)
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)
            os.close(handle)


def _mark(paths: EnvironmentPaths, path: Path, purpose: str) -> int | None:
    if not paths.folder.is_dir() or not os.access(paths.folder, os.W_OK):
        return None
    with suppress(OSError), environment_lock(paths):  # not while it is replaced
        path.parent.mkdir(exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, purpose.encode("utf-8", "replace"))
        return handle
    return None


def users_of(paths: EnvironmentPaths) -> list[str]:
    """What uses an environment: `train runs/x (process 42)`. Removes the files of processes that have ended."""
    found = []
    for path in sorted((paths.folder / "users").glob("*")):
        with suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            except BlockingIOError:
                found.append(f"{read_file_text(path)} (process {path.name})")
            finally:
                os.close(handle)
    return found


def require_unused(paths: EnvironmentPaths, *, force: bool, command: str) -> None:
    """Raise Refused if something of ours runs in the environment. The caller holds its lock."""
    users = [] if force else users_of(paths)
    if users:
        raise Refused(
            f"{paths.venv} is used by {', '.join(users)}",
            expected="an environment in which nothing runs",
            hint=f"wait until it has ended; to break it: {command}",
        )
