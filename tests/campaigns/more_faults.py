"""Faults of the place itself: caches that cannot be written to, clocks, two at once, folders that are gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_ground import KILL, Ended, Field, Row, at_sync, end, small_disk

Fault = Callable[[Field], Row]

# A clock that jumps once a file is there; CLOCK_MONOTONIC goes on, as it does when somebody sets the time.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static int (*real)(clockid_t, struct timespec *);
static time_t jump(void) {
    static int jumped;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    if (!jumped && access(getenv("JUMP_WHEN"), F_OK) == 0) jumped = 1;
    return jumped ? atol(getenv("JUMP_BY")) : 0;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    time_t by = jump(); int code = real(id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += by;
    return code;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now; (void)zone; clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec; t->tv_usec = now.tv_nsec / 1000; return 0;
}
time_t time(time_t *t) {
    struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""
YEAR = 365 * 86400


def place_faults() -> Iterator[tuple[str, Fault]]:
    """All of them."""
    yield "the cache is on a read-only disk", read_only_cache
    yield "a file lies where the cache should be", file_for_cache
    for by in (-10 * YEAR, 10 * YEAR):
        yield f"the clock jumps by {by // YEAR} years", _clock(by)
    yield "a second install while one runs", second_one
    yield "ten installs at once", ten_at_once
    yield "ten first installs at once", ten_first
    for when in ("before", "in the middle", "after a kill"):
        yield f"the environment is deleted {when}", _deleted(when)
    yield "what is being built is deleted", building_deleted
    yield "the folder beside is deleted in the middle", beside_deleted
    for what, (damage, expected) in JOURNALS.items():
        yield f"the journal is {what}", _journal(what, damage, expected)


def read_only_cache(field: Field) -> Row:
    """A cache that somebody mounted read-only."""
    ground = field.ground(cold=True)
    with small_disk(ground.home / "small", 4) as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        ground.cache = disk / "cache"
        said = ground.complete(form="human")
        ground.cache = field.root / "cache"
        return ground.fault(said, "the cache is on a read-only disk", r"cache.*(cannot be written to|[Rr]ead-only)")


def file_for_cache(field: Field) -> Row:
    """UV_CACHE_DIR names a file."""
    ground = field.ground()
    (ground.home / "cache").write_text("mine")
    ground.cache = ground.home / "cache"
    said = ground.complete(form="human")
    ground.cache = field.root / "cache"
    expected = r"cache.*(cannot be written|not a directory|File exists)"
    return ground.fault(said, "a file lies where the cache should be", expected)


def _clock(by: int) -> Fault:
    def fault(field: Field) -> Row:
        name = f"the clock jumps by {by // YEAR} years"
        ground = field.ground()
        source, library = ground.home / "clock.c", ground.home / "clock.so"
        source.write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        ground.extra = {
            "LD_PRELOAD": str(library),
            "JUMP_WHEN": str(ground.paths.building / "bin"),
            "JUMP_BY": str(by),
        }
        said = ground.complete(form="human")
        row = ground.fault(said, name, "installed in")
        ground.extra.clear()
        again = ground.complete()
        if again.code or not again.data["unchanged"]:
            row.next = f"it is built again when the clock is right: {again.said[-300:]}"
        lines = [json.loads(line) for line in ground.paths.journal.read_text().splitlines()]
        negative = [line for line in lines if line.get("seconds", 0) < 0 or line.get("seconds", 0) > 60]
        jumped = {line["at"][:4] for line in lines}
        if negative or len(jumped) < 2:
            row.message = f"durations {negative}, years {jumped}"
        return row

    return fault


def second_one(field: Field) -> Row:
    """The second is told who is at work."""
    ground = field.ground(cold=True)
    with at_sync(ground) as (first, web):
        other = field.ground(over=False)  # the same environment, with sources that answer
        other.__class__ = type("Same", (type(ground),), {"venv": ground.venv})
        said = end(other.begin())
        web.stalled = False
        done = end(first)
        row = ground.fault(
            said, "a second install while one runs", f"is in progress: process {first.pid}, which is running"
        )
    if done.code:
        row.next = f"the first one failed: {done.said[-400:]}"
    return row


def ten_at_once(field: Field) -> Row:
    """One builds; the others find it done, or are told who is at it."""
    return _ten(field, "ten installs at once", over=True)


def ten_first(field: Field) -> Row:
    """The same where there is nothing yet."""
    return _ten(field, "ten first installs at once", over=False)


def _ten(field: Field, name: str, *, over: bool) -> Row:
    ground = field.ground(over=over)
    ended = [end(process) for process in [ground.begin(form="json") for _ in range(10)]]
    built = [each for each in ended if each.code == 0 and not each.data["unchanged"]]
    refused = [each for each in ended if each.code == 3 and "is in progress: process" in each.said]
    found = [each for each in ended if each.code == 0 and each.data["unchanged"]]
    row = ground.fault(Ended(0, f"{len(built)} built"), name, "^1 built")
    if len(built) + len(refused) + len(found) != 10:
        others = [each for each in ended if each not in built + refused + found]
        row.message = f"somebody was told something else: {others[0].said[-500:]}"
    return row


def _deleted(when: str) -> Fault:
    def fault(field: Field) -> Row:
        name = f"the environment is deleted {when}"
        ground = field.ground(cold=when == "in the middle")
        ground.had = False
        expected = "installed in"
        if when == "before":
            shutil.rmtree(ground.venv)
            return ground.fault(ground.complete(form="human"), name, expected)
        if when == "after a kill":
            killed = ground.complete(KILL.format(number=4))
            assert killed.code == -signal.SIGKILL, killed
            shutil.rmtree(ground.venv)
            return ground.fault(ground.complete(form="human"), name, expected)
        with at_sync(ground) as (process, web):
            shutil.rmtree(ground.venv)
            web.stalled = False
            return ground.fault(end(process), name, expected)

    return fault


def building_deleted(field: Field) -> Row:
    """Somebody clears up with rm -r while uv works."""
    ground = field.ground(cold=True)
    with at_sync(ground) as (process, web):
        shutil.rmtree(ground.paths.building)
        web.stalled = False
        said = end(process)
    return ground.fault(said, "what is being built is deleted", r"building|does not match the lock|No such file")


def beside_deleted(field: Field) -> Row:
    """The journal and the lock go with it."""
    ground = field.ground(cold=True)
    with at_sync(ground) as (process, web):
        shutil.rmtree(ground.paths.folder)
        web.stalled = False
        said = end(process)
    return ground.fault(said, "the folder beside is deleted in the middle", r"\.mine\.envdoctor")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "note.txt").write_text("somebody's")


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data + data.splitlines()[0][:60])


JOURNALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda path: path.write_bytes(os.urandom(4096) + b"\n{}\n[1]\n" + b"[" * 9000), "lines of .*journal"),
    "empty": (lambda path: path.write_bytes(b""), "installed in"),
    "cut in the middle of a line": (_cut, "1 line.* of .*journal"),
    "a folder": (_folder, "journal"),
    "a link to nowhere": (lambda path: (path.unlink(), path.symlink_to("nowhere/at/all")), "journal"),
    "one that nobody may read": (lambda path: path.chmod(0), "installed in"),
}


def _journal(what: str, damage: Callable[[Path], object], expected: str) -> Fault:
    def fault(field: Field) -> Row:
        ground = field.ground()
        damage(ground.paths.journal)
        return ground.fault(ground.complete(form="human"), f"the journal is {what}", expected)

    return fault
