"""Whether a run's trainer is alive, from the lock file that the trainer holds."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Literal

from envdoctor.core.files import open_file, read_file_text

NETWORK_FILESYSTEMS = (
    "nfs", "cifs", "smb", "9p", "ceph", "lustre", "gpfs", "beegfs", "afs", "gluster", "fuse.",
)  # fmt: skip
LOCAL_FUSE = ("fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.gocryptfs", "fuse.encfs", "fuse.bindfs", "fuse.ntfs-3g")
LOCK_FILE = ".lock"

TrainerStatus = Literal["running", "gone", "unknown", "not started"]


def read_trainer_status(directory: Path, *, local: bool) -> tuple[TrainerStatus, int]:
    """Return a trainer's status and process number (0: not known).

    1. A process of this machine that has the lock file open is the trainer.
    2. Otherwise, on a local disk, the lock itself decides: the kernel releases it with the process. This also works
       for a trainer in a container, whose process number differs outside.
    3. On a network file system the status is unknown.
    """
    lock = directory / LOCK_FILE
    try:
        content = read_file_text(lock)
    except OSError:
        return ("not started" if local else "unknown"), 0
    process = int(content) if content.isascii() and content.strip().isdigit() and len(content) < 12 else 0
    if process and _has_open(process, lock):
        return "running", process
    if not local:
        return "unknown", process
    return ("running" if is_locked(lock) else "gone"), process


def _has_open(process: int, file: Path) -> bool:
    try:
        return any(link.is_symlink() and link.readlink() == file for link in Path(f"/proc/{process}/fd").iterdir())
    except OSError:  # the process does not exist or belongs to another user
        return False


def is_locked(lock: Path) -> bool:
    """Whether a process holds the lock.

    The test takes a shared lock for an instant. A trainer that starts at that instant would fail, so callers look
    for a process with the file open first.
    """
    try:
        with open_file(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_network(folder: Path, mounts: str) -> bool:
    """Whether a directory is on a network file system, by the content of /proc/self/mounts.

    Sample: "server:/home /home nfs4 rw,relatime 0 0"
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        point = parts[1].replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, parts[2]
    return kind.startswith(NETWORK_FILESYSTEMS) and kind not in LOCAL_FUSE


def is_local(folder: Path) -> bool:
    """Whether a directory is on a disk of this machine."""
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="replace")
    except OSError:
        return True
    return not is_network(Path(os.path.realpath(folder)), mounts)  # Path.resolve() raises on a symlink loop
