"""Process limits that long runs meet."""

from __future__ import annotations

import resource

from envdoctor.core.records import Fact, Limits, known


def read_limits() -> Limits:
    """Soft limits of this process, which its children inherit."""
    return Limits(
        open_files=_soft(resource.RLIMIT_NOFILE, "RLIMIT_NOFILE"),
        processes=_soft(resource.RLIMIT_NPROC, "RLIMIT_NPROC"),
        locked_memory=_soft(resource.RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"),
        stack=_soft(resource.RLIMIT_STACK, "RLIMIT_STACK"),
    )


def _soft(which: int, name: str) -> Fact[int]:
    soft, hard = resource.getrlimit(which)
    hard_text = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return known(-1 if soft == resource.RLIM_INFINITY else soft, f"getrlimit {name}", f"hard limit {hard_text}")
