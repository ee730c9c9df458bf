"""How much memory a process and those that it started hold.

An address space limit (RLIMIT_AS) cannot bound a CUDA process, which reserves as many addresses as the machine has
memory and all GPUs together, and RLIMIT_DATA counts reservations too: so this looks, and the caller stops it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

PROCESSES = Path("/proc")


def find_session(word: str) -> int:
    """The session of the first process that has this word on its command line, 0 if there is none."""
    wanted = word.encode()
    for folder in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "cmdline").read_bytes().split(b"\0"):
                return parse_session((folder / "stat").read_text())
    return 0


def session_memory(session: int) -> int:
    """Bytes of private memory that all processes of a session hold: what only ending them gives back."""
    held = 0
    for folder in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it may end while it is read
            if parse_session((folder / "stat").read_text()) == session:
                held += parse_private((folder / "status").read_text())
    return held


def parse_session(stat: str) -> int:
    """The session of a /proc/PID/stat.

    1234 (python (x)) S 1 1234 1230 0 -1 4194304
    """
    return int(stat.rpartition(")")[2].split()[3])


def parse_private(status: str) -> int:
    """Anonymous and shared memory of a /proc/PID/status in bytes; mapped files do not count, they can be dropped.

    RssAnon:     1024 kB
    RssFile:     9000 kB
    RssShmem:       4 kB
    """
    rows = (line.split() for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(row[1]) * 1024 for row in rows)
