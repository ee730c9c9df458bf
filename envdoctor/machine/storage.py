"""The directories that a stack writes to, and their free space."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from envdoctor.core.directories import data_directory, home_directory
from envdoctor.core.records import Fact, Filesystem, Storage, known, unreadable
from envdoctor.machine.timeout import call_with_timeout

STATFS_SECONDS = 2.0  # a dead NFS mount never responds


def environments_directory(environ: Mapping[str, str]) -> Path:
    """The directory of the managed environments, below XDG_DATA_HOME."""
    return data_directory(environ) / "envs"


def storage_directories(environ: Mapping[str, str]) -> dict[str, Path]:
    """Directories by role, with the defaults of uv, Hugging Face and the system."""
    home = home_directory(environ)
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return {
        "home": home,
        "environments": environments_directory(environ),
        "uv cache": Path(environ.get("UV_CACHE_DIR") or cache / "uv"),
        "hf cache": Path(environ.get("HF_HOME") or cache / "huggingface"),
        "tmp": Path(environ.get("TMPDIR") or "/tmp"),
        "shm": Path("/dev/shm"),
    }


def read_storage(environ: Mapping[str, str] = os.environ) -> Storage:
    """Size and free space of each directory. For a missing directory, its nearest existing parent counts."""
    try:
        mounts = parse_mounts(Path("/proc/mounts").read_text(errors="replace"))
    except OSError:
        mounts = {}
    filesystems: dict[str, Filesystem] = {}
    failed = []
    for role, path in storage_directories(environ).items():
        filesystem = read_filesystem(path, mounts)
        if filesystem.value is not None:
            filesystems[role] = filesystem.value
        elif filesystem.state == "unreadable":
            failed.append(f"{role}: {filesystem.note}")
    if failed and not filesystems:
        return Storage(places=unreadable("statvfs", "; ".join(failed)))
    return Storage(places=known(filesystems, "statvfs", "; ".join(failed)))


def read_filesystem(path: Path, mounts: Mapping[str, str]) -> Fact[Filesystem]:
    """The file system of `path` or of its nearest existing parent."""
    try:
        return call_with_timeout(STATFS_SECONDS, lambda: _stat(path, mounts))
    except (OSError, TimeoutError) as error:
        return unreadable("statvfs", f"{path}: {error}")


def parse_mounts(text: str) -> dict[str, str]:
    """File system types by mount point, from lines such as `tmpfs /dev/shm tmpfs rw,nosuid 0 0`."""
    return {re.sub(r"\\040", " ", row[1]): row[2] for line in text.splitlines() if len(row := line.split(" ")) >= 3}


def _stat(path: Path, mounts: Mapping[str, str]) -> Fact[Filesystem]:
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists()).resolve()
    sizes = os.statvfs(existing)
    mount = next((str(candidate) for candidate in (existing, *existing.parents) if str(candidate) in mounts), "")
    return known(
        Filesystem(
            path=str(path),
            total=sizes.f_blocks * sizes.f_frsize,
            free=sizes.f_bavail * sizes.f_frsize,
            kind=mounts.get(mount, ""),
        ),
        "statvfs",
    )
