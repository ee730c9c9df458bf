"""Faults of disks: full before, full meanwhile, full for the log, a quota."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_ground import Ended, Field, Ground, Row, at_sync, end, fill, lock_this, small_disk
from local_packages import write_wheel

Fault = Callable[[Field], Row]
DISK_MIB = 400  # more than the room that is asked for before anything is written


def disk_faults() -> Iterator[tuple[str, Fault]]:
    """All of them."""
    yield "the disk is full before it begins", full_before
    yield "the disk fills in the download", full_in_sync
    yield "the disk of the cache fills", full_cache
    yield "the disk of the logs is full", full_state
    yield "a limit on the size of files (quota)", limited_files


def full_before(field: Field) -> Row:
    """There is no room at all, and none for the note about it."""
    ground = field.ground()
    with _disk(ground, DISK_MIB) as disk:
        ballast = fill(disk)
        ground.extra = {"UV_LINK_MODE": "copy"}
        said = ground.complete(form="human")
        ground.extra.clear()
        row = Row("", current=ground.broken(), whole=ground.half_made())
        ballast.unlink()
        ground.cache = disk / "cache"  # on the same disk, so that hard links do
        seen = _fault_later(ground, said, "the disk is full before it begins", r"0\.0 GiB are free|No space left")
        return _merge(row, seen)


def full_in_sync(field: Field) -> Row:
    """The disk of the environment fills while packages come."""
    name = "the disk fills in the download"
    ground = field.ground(cold=True)
    with _disk(ground, DISK_MIB) as disk:
        ground.cache = disk / "cache"
        with at_sync(ground) as (process, web):
            ballast = fill(disk)
            web.stalled = False
            said = end(process)
        row = Row("", current=ground.broken(), whole=ground.half_made())
        ballast.unlink()
        return _merge(row, _fault_later(ground, said, name, r"No space left|os error 28"))


def full_cache(field: Field) -> Row:
    """The disk of uv's cache fills; the environment lies on another."""
    ground = field.ground(cold=True)
    with small_disk(ground.home / "small", DISK_MIB) as disk:
        ground.cache = disk / "cache"
        with at_sync(ground) as (process, web):
            ballast = fill(disk)
            web.stalled = False
            said = end(process)
        ballast.unlink()
        return ground.fault(said, "the disk of the cache fills", r"No space left|os error 28")


def full_state(field: Field) -> Row:
    """The disk of the logs is full."""
    ground = field.ground()
    with small_disk(ground.home / "small", 4) as disk:
        fill(disk)
        ground.extra = {"XDG_STATE_HOME": str(disk / "state")}
        said = ground.complete(form="human")
        ground.extra.clear()
        return ground.fault(said, "the disk of the logs is full", "the disk of its log is full")


def limited_files(field: Field) -> Row:
    """What a quota does: no file may grow past a limit (RLIMIT_FSIZE)."""
    name = "a limit on the size of files (quota)"
    ground = field.ground(cold=True)
    private = ground.home / "wheels"
    shutil.copytree(ground.wheels, private)
    data = b"".join(hashlib.sha256(bytes(str(n), "ascii")).digest() for n in range(40_000))
    lock_this(ground, "beta", write_wheel(private, "beta", "2.0", files={"beta/data.bin": data}))
    ground.extra = {"PIP_FIND_LINKS": str(private), "TMPDIR": str(ground.home)}
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))"
    said = ground.complete(code, form="human")
    return ground.fault(said, name, r"SIGXFSZ|File too large")


@contextlib.contextmanager
def _disk(ground: Ground, mib: int) -> Iterator[Path]:
    """The folder of environments on a small disk of its own."""
    envs = ground.venv.parent
    kept = envs.with_name("kept")
    envs.rename(kept)
    with small_disk(envs, mib) as disk:
        subprocess.run(["cp", "-a", f"{kept}/.", disk], check=True)
        yield disk
    shutil.rmtree(kept)


def _fault_later(ground: Ground, said: Ended, name: str, expected: str) -> Row:
    row = ground.fault(said, name, expected)
    if row.next.startswith("left over"):  # uv's cache lies in the folder of environments here
        row.next = "" if set(ground.left()) <= {"mine", "+previous", "cache", "ballast"} else row.next
    return row


def _merge(first: Row, row: Row) -> Row:
    row.current, row.whole = first.current or row.current, first.whole or row.whole
    return row
