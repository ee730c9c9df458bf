"""Private memory of a process and its children.

Limits of the kernel do not work for CUDA processes: RLIMIT_AS counts reserved addresses, of which CUDA reserves as
many as the machine and all GPUs have memory, and RLIMIT_DATA counts reservations as well. So the memory is polled.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

PROC = Path("/proc")


def find_session(argument: str) -> int:
    """The session id of the first process that has this argument on its command line, 0 if there is none."""
    encoded = argument.encode()
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if encoded in (folder / "cmdline").read_bytes().split(b"\0"):
                return parse_session((folder / "stat").read_text())
    return 0


def session_memory(session: int) -> int:
    """Private memory in bytes of all processes of a session."""
    total = 0
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # the process may end at any time
            if parse_session((folder / "stat").read_text()) == session:
                total += parse_private_memory((folder / "status").read_text())
    return total


def parse_session(stat: str) -> int:
    """The session id in a /proc/PID/stat.

    1234 (python (x)) S 1 1234 1230 0 -1 4194304
    """
    return int(stat.rpartition(")")[2].split()[3])


def parse_private_memory(status: str) -> int:
    """Anonymous and shared memory in bytes in a /proc/PID/status. Mapped files can be evicted and do not count.

    RssAnon:     1024 kB
    RssFile:     9000 kB
    RssShmem:       4 kB
    """
    rows = (line.split() for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(row[1]) * 1024 for row in rows)
