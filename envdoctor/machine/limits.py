"""Process limits that affect training runs."""

from __future__ import annotations

import resource

from envdoctor.core.records import Fact, Limits, known


def read_limits() -> Limits:
    """The soft limits of this process, which child processes inherit."""
    return Limits(
        open_files=_read_limit(resource.RLIMIT_NOFILE, "RLIMIT_NOFILE"),
        processes=_read_limit(resource.RLIMIT_NPROC, "RLIMIT_NPROC"),
        locked_memory=_read_limit(resource.RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"),
        stack=_read_limit(resource.RLIMIT_STACK, "RLIMIT_STACK"),
    )


def _read_limit(resource_id: int, name: str) -> Fact[int]:
    soft, hard = resource.getrlimit(resource_id)
    hard_text = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return known(-1 if soft == resource.RLIM_INFINITY else soft, f"getrlimit {name}", f"hard limit {hard_text}")
