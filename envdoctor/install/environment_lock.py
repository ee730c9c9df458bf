"""The lock of an environment: only one process changes it at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from envdoctor.core.errors import EnvdoctorError
from envdoctor.environment.managed import EnvironmentPaths

ORPHAN_SECONDS = 120.0  # how long to wait for the uv process of an install that was killed
RUNNING_SECONDS = 1.5  # how long to wait for a running process, which may only be reading the state


@contextmanager
def environment_lock(paths: EnvironmentPaths) -> Iterator[TextIO]:
    """Lock an environment.

    uv inherits the open lock file. The environment stays locked while uv runs, even if the install itself is killed.
    """
    paths.make_folder()
    with _acquire(paths) as file:
        with suppress(OSError):  # On a full disk, lock without the process id, so that `clean` can free space.
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield file


def check_unlocked(paths: EnvironmentPaths) -> None:
    """Raise EnvdoctorError if another process has locked the environment. Ignores other problems with the lock."""
    if paths.folder.is_dir():
        with contextlib.suppress(OSError), environment_lock(paths):
            pass


def _acquire(paths: EnvironmentPaths) -> TextIO:
    """The lock file, open and locked. Waits for the uv process of an install that was killed."""
    started = time.monotonic()
    while True:
        paths.make_folder()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = open(os.open(paths.lock_file, flags, 0o644), "r+")  # noqa: PTH123, SIM115  closed below or by the caller
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(paths.lock_file, file):
                return file  # otherwise `uninstall` has just removed the file
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            running = is_running(owner)
            if time.monotonic() - started > (RUNNING_SECONDS if running else ORPHAN_SECONDS):
                file.close()
                state = "is running" if running else "has ended, but a process that it started is still running"
                raise EnvdoctorError(
                    f"another install of {paths.venv} is in progress: process {owner or 'unknown'}, which {state}",
                    expected="one install at a time",
                    hint="wait until it has ended, then run the command again",
                ) from None
        file.close()
        time.sleep(0.1)


def _is_same_file(path: Path, file: TextIO) -> bool:
    """Whether an open file still is the file at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def is_running(process: str) -> bool:
    """Whether a process with this id is running. True for an empty id: the process has not written it yet."""
    return not process.isdigit() or Path("/proc", process).exists()
