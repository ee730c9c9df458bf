"""Whether a run is being trained, by the lock that its trainer holds: for all who would read or write its files."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Literal

NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "gpfs", "beegfs", "afs", "gluster", "fuse.")
LOCAL_FUSE = ("fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.gocryptfs", "fuse.encfs", "fuse.bindfs", "fuse.ntfs-3g")
LOCK = ".lock"

Trainer = Literal["running", "gone", "unknown", "not started"]


def find_trainer(folder: Path, *, local: bool) -> tuple[Trainer, int]:
    """Whether the trainer's process lives, and its number, by the lock that it holds.

    A process of that number here that has the lock open is it. Else, on a disk of this machine, the lock itself
    tells: it goes with its process, in a container too. Over a network file system it tells nothing.
    """
    lock = folder / LOCK
    try:
        content = lock.read_text()
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
    except OSError:  # no such process, or not ours to look into
        return False


def is_locked(lock: Path) -> bool:
    """Whether a process holds the lock. It is asked for, shared, for an instant: a trainer that starts in this very
    instant would be refused, so it is only asked where no process is seen to have it."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_network(folder: Path, mounts: str) -> bool:
    """Whether a folder lies on another machine, by /proc/self/mounts.

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
    return kind.startswith(NETWORK) and kind not in LOCAL_FUSE


def is_local(folder: Path) -> bool:
    """Whether a folder lies on a disk of this machine."""
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="replace")
    except OSError:
        return True
    return not is_network(Path(os.path.realpath(folder)), mounts)  # resolve() raises where links go round
