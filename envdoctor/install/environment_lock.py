"""One at a time: whoever changes an environment holds its lock, and a second one is told by whom."""

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

ORPHAN_SECONDS = 120.0  # how long the uv of an install that was killed is waited for
BRIEF_SECONDS = 1.5  # how long one that runs is waited for: it may only be looking what is there


@contextmanager
def environment_lock(paths: EnvironmentPaths) -> Iterator[TextIO]:
    """Hold the lock of an environment.

    uv inherits the open file: as long as it writes, the lock is held, though the install itself may have been killed.
    """
    paths.make_folder()
    with _locked(paths) as file:
        _sign(file)
        yield file


def _sign(file: TextIO) -> None:
    """Write down who holds the lock; on a full disk it is held without: `clean` must be able to free some room."""
    with suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), str(os.getpid()).encode())


def check_unlocked(paths: EnvironmentPaths) -> None:
    """Say who holds the lock, if somebody does; what else is wrong with it is for whoever takes it to say."""
    if paths.folder.is_dir():
        with contextlib.suppress(OSError), environment_lock(paths):
            pass


def _locked(paths: EnvironmentPaths) -> TextIO:
    """The lock file, open and locked; the uv of an install that was killed is waited for."""
    started = time.monotonic()
    while True:
        paths.make_folder()
        file = paths.lock_file.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(paths.lock_file, file):
                return file  # else `uninstall` has just taken the file away
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            running = is_running(holder)
            if time.monotonic() - started > (BRIEF_SECONDS if running else ORPHAN_SECONDS):
                file.close()
                state = "runs" if running else "is gone, but something that it started still runs"
                raise EnvdoctorError(
                    f"another install of {paths.venv} is at work: process {holder or 'unknown'}, which {state}",
                    expected="one install at a time",
                    hint="wait for it to end, then run this again",
                ) from None
        file.close()
        time.sleep(0.1)


def _is_at(path: Path, file: TextIO) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def is_running(process: str) -> bool:
    """Whether a process of this number runs; one that has not written its number yet does."""
    return not process.isdigit() or Path("/proc", process).exists()
