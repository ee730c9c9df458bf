"""Faults of the local machine: unusable caches, clock changes, concurrent installs, removed or damaged files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from campaigns.fault_injection import (
    KILL_AFTER_RECORD,
    Campaign,
    CommandResult,
    FaultResult,
    install_during_download,
    mount_tmpfs,
    wait_for_exit,
)
from support.command import interpreter

Fault = Callable[[Campaign], FaultResult]

# Shifts the wall clock once a file exists. CLOCK_MONOTONIC is unchanged, as when an administrator sets the time.
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


def local_faults() -> Iterator[tuple[str, Fault]]:
    yield "the cache is on a read-only disk", read_only_cache
    yield "the path of the cache is a file", file_as_cache
    for seconds in (-10 * YEAR, 10 * YEAR):
        name = f"the clock jumps by {seconds // YEAR} years"
        yield name, _clock_jump(name, seconds)
    yield "a second install while one runs", second_install
    for with_environment in (True, False):
        name = f"ten {'' if with_environment else 'first '}installs at once"
        yield name, _ten_installs(name, with_environment=with_environment)
    yield "the environment is removed before the install", environment_removed
    yield "the environment is removed during the download", environment_removed_during_download
    yield "the environment is removed after a kill", environment_removed_after_kill
    yield "the environment being built is removed", building_removed
    yield "the data folder is removed during the download", data_folder_removed
    for state, (damage, expected) in JOURNALS.items():
        name = f"the journal is {state}"
        yield name, _damaged_journal(name, damage, expected)


def read_only_cache(campaign: Campaign) -> FaultResult:
    home = campaign.create_home(empty_cache=True)
    with mount_tmpfs(home.home / "small", 4) as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        home.cache = disk / "cache"
        failed = home.run_install(output_format="human")
        home.cache = campaign.root / "cache"
        return home.check(failed, "the cache is on a read-only disk", r"cache.*(cannot be written to|[Rr]ead-only)")


def file_as_cache(campaign: Campaign) -> FaultResult:
    """UV_CACHE_DIR is the path of a file."""
    home = campaign.create_home()
    home.cache = home.home / "cache"
    home.cache.write_text("content")
    failed = home.run_install(output_format="human")
    home.cache = campaign.root / "cache"
    expected = r"cache.*(cannot be written|not a directory|File exists)"
    return home.check(failed, "the path of the cache is a file", expected)


def _clock_jump(name: str, seconds: int) -> Fault:
    """The install succeeds, and its journal has correct durations."""

    def fault(campaign: Campaign) -> FaultResult:
        home = campaign.create_home()
        source, library = home.home / "clock.c", home.home / "clock.so"
        source.write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        home.extra_variables = {
            "LD_PRELOAD": str(library),
            "JUMP_WHEN": str(home.paths.building / "bin"),
            "JUMP_BY": str(seconds),
        }
        during_jump = home.run_install(output_format="human")
        result = home.check(during_jump, name, "installed in")
        home.extra_variables.clear()
        repeated = home.run_install()
        if repeated.exit_code or not repeated.data["unchanged"]:
            result.next_install = f"built again after the clock is corrected: {repeated.output[-300:]}"
        entries = [json.loads(line) for line in home.paths.journal.read_text().splitlines()]
        durations = [entry["seconds"] for entry in entries if not 0 <= entry.get("seconds", 0) <= 60]
        years = {entry["at"][:4] for entry in entries}
        if durations or len(years) < 2:
            result.message = f"durations {durations}, years {years}"
        return result

    return fault


def second_install(campaign: Campaign) -> FaultResult:
    """The second install fails and reports the process of the first one."""
    home = campaign.create_home(empty_cache=True)
    with install_during_download(home) as (first, index):
        other = campaign.create_home(with_environment=False)  # installs the same environment from the wheels
        other.__class__ = type("SameEnvironment", (type(home),), {"venv": home.venv})
        second_result = wait_for_exit(other.start_install())
        index.stalled = False
        first_result = wait_for_exit(first)
        expected = f"is in progress: process {first.pid}, which is running"
        result = home.check(second_result, "a second install while one runs", expected)
    if first_result.exit_code:
        result.next_install = f"the first install failed: {first_result.output[-400:]}"
    return result


def _ten_installs(name: str, *, with_environment: bool) -> Fault:
    """One install builds; the others find its result or report that it is in progress."""

    def fault(campaign: Campaign) -> FaultResult:
        home = campaign.create_home(with_environment=with_environment)
        results = [
            wait_for_exit(process)
            for process in [home.start_install(output_format="json", python=interpreter()) for _ in range(10)]
        ]
        built = [result for result in results if result.exit_code == 0 and not result.data["unchanged"]]
        unchanged = [result for result in results if result.exit_code == 0 and result.data["unchanged"]]
        locked = [
            result for result in results if result.exit_code == 3 and "is in progress: process" in result.output
        ]
        checked = home.check(CommandResult(0, f"{len(built)} built"), name, "^1 built")
        if others := [result for result in results if result not in built + unchanged + locked]:
            checked.message = f"an unexpected result: {others[0].output[-500:]}"
        return checked

    return fault


def environment_removed(campaign: Campaign) -> FaultResult:
    home = campaign.create_home()
    home.had_environment = False
    shutil.rmtree(home.venv)
    result = home.run_install(output_format="human")
    return home.check(result, "the environment is removed before the install", "installed in")


def environment_removed_during_download(campaign: Campaign) -> FaultResult:
    home = campaign.create_home(empty_cache=True)
    home.had_environment = False
    with install_during_download(home) as (process, index):
        shutil.rmtree(home.venv)
        index.stalled = False
        result = wait_for_exit(process)
        return home.check(result, "the environment is removed during the download", "installed in")


def environment_removed_after_kill(campaign: Campaign) -> FaultResult:
    home = campaign.create_home()
    home.had_environment = False
    killed = home.run_install(KILL_AFTER_RECORD.format(number=4))
    assert killed.exit_code == -signal.SIGKILL, killed
    shutil.rmtree(home.venv)
    result = home.run_install(output_format="human")
    return home.check(result, "the environment is removed after a kill", "installed in")


def building_removed(campaign: Campaign) -> FaultResult:
    """The folder of the new environment is removed while uv writes to it."""
    home = campaign.create_home(empty_cache=True)
    with install_during_download(home) as (process, index):
        shutil.rmtree(home.paths.building)
        index.stalled = False
        failed = wait_for_exit(process)
    expected = r"building|does not match the lock|No such file"
    return home.check(failed, "the environment being built is removed", expected)


def data_folder_removed(campaign: Campaign) -> FaultResult:
    """The folder with the journal and the lock file is removed."""
    home = campaign.create_home(empty_cache=True)
    with install_during_download(home) as (process, index):
        shutil.rmtree(home.paths.folder)
        index.stalled = False
        failed = wait_for_exit(process)
    return home.check(failed, "the data folder is removed during the download", r"\.mine\.envdoctor")


def _replace_with_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "note.txt").write_text("content")


def _append_partial_line(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data + data.splitlines()[0][:60])


JOURNALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "random bytes": (
        lambda path: path.write_bytes(os.urandom(4096) + b"\n{}\n[1]\n" + b"[" * 9000),
        "lines of .*journal",
    ),
    "empty": (lambda path: path.write_bytes(b""), "installed in"),
    "cut in the middle of a line": (_append_partial_line, "1 line.* of .*journal"),
    "a folder": (_replace_with_folder, "journal"),
    "a dangling symlink": (lambda path: (path.unlink(), path.symlink_to("nowhere/at/all")), "journal"),
    "without permissions": (lambda path: path.chmod(0), "installed in"),
}


def _damaged_journal(name: str, damage: Callable[[Path], object], expected: str) -> Fault:
    def fault(campaign: Campaign) -> FaultResult:
        home = campaign.create_home()
        damage(home.paths.journal)
        return home.check(home.run_install(output_format="human"), name, expected)

    return fault
