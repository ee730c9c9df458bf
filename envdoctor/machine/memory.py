"""Host memory and the memory limit of the cgroup."""

from __future__ import annotations

import re
from pathlib import Path

from envdoctor.core.records import Fact, Memory, absent, known, unreadable

# cgroup v1 writes "no limit" as the largest page-aligned signed 64-bit number.
NO_LIMIT = 1 << 60


def read_memory(root: Path = Path("/")) -> Memory:
    """Total and available memory, and the smallest memory limit of the cgroups of this process."""
    source = "/proc/meminfo"
    try:
        sizes = parse_meminfo((root / "proc/meminfo").read_text())
    except OSError as error:
        failed: Fact[int] = unreadable(source, str(error.strerror))
        return Memory(total=failed, available=failed, cgroup_limit=read_cgroup_limit(root))
    return Memory(
        total=_size(sizes, "MemTotal", source),
        available=_size(sizes, "MemAvailable", source),
        cgroup_limit=read_cgroup_limit(root),
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Sizes in bytes of lines like `MemTotal:       24617496 kB`."""
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def parse_cgroup_paths(text: str) -> tuple[str, str]:
    """The paths of the v2 group and of the v1 memory group from /proc/self/cgroup.

    v2: `0::/user.slice/session-1.scope`; v1: `9:memory:/docker/ab12`. Empty if there is none.
    """
    unified = re.search(r"^0::(.*)$", text, re.MULTILINE)
    memory = re.search(r"^\d+:[\w,]*\bmemory\b[\w,]*:(.*)$", text, re.MULTILINE)
    return (unified[1] if unified else "", memory[1] if memory else "")


def read_cgroup_limit(root: Path = Path("/")) -> Fact[int]:
    """The smallest memory limit of this process's cgroup and its ancestors; absent if there is none."""
    try:
        unified, legacy = parse_cgroup_paths((root / "proc/self/cgroup").read_text())
    except OSError as error:
        return unreadable("/proc/self/cgroup", str(error.strerror))
    limits = [
        *_limits(root / "sys/fs/cgroup", unified, "memory.max"),
        *_limits(root / "sys/fs/cgroup/memory", legacy, "memory.limit_in_bytes"),
    ]
    if not limits:
        return absent("cgroup memory.max")
    limit, path = min(limits)
    return known(limit, path)


def _limits(mount: Path, group: str, file: str) -> list[tuple[int, str]]:
    """The limits of a group and its ancestors, up to the mount point of the hierarchy.

    Inside a container the path of the group is often not visible; the mount point is then the group itself.
    """
    limits = []
    directory = mount / group.lstrip("/")
    for ancestor in [directory, *directory.parents]:
        try:
            text = (ancestor / file).read_text().strip()
        except OSError:
            text = ""
        if text.isdigit() and int(text) < NO_LIMIT:
            limits.append((int(text), str(ancestor / file)))
        if ancestor == mount:
            break
    return limits


def _size(sizes: dict[str, int], name: str, source: str) -> Fact[int]:
    return known(sizes[name], f"{source} {name}") if name in sizes else absent(f"{source} {name}")
