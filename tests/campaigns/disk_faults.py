"""Disk faults: full before or during an install, full for the cache or the log, and a file size limit."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from campaigns.fault_injection import (
    Campaign,
    CommandResult,
    FaultHome,
    FaultResult,
    fill_disk,
    install_during_download,
    mount_tmpfs,
    set_locked_hash,
    wait_for_exit,
)
from support.local_packages import write_wheel

Fault = Callable[[Campaign], FaultResult]
DISK_MIB = 400  # more than the free space that the survey requires
NO_SPACE = r"No space left|os error 28"


def disk_faults() -> Iterator[tuple[str, Fault]]:
    yield "the disk is full before the install", full_before_install
    yield "the disk fills during the download", full_during_download
    yield "the disk of the cache fills", full_cache_disk
    yield "the disk of the logs is full", full_log_disk
    yield "a file size limit (quota)", file_size_limit


def full_before_install(campaign: Campaign) -> FaultResult:
    """There is no space for the environment or the journal."""
    home = campaign.create_home()
    with _disk_for_environments(home) as disk:
        ballast = fill_disk(disk)
        home.extra_variables = {"UV_LINK_MODE": "copy"}
        failed = home.run_install(output_format="human")
        home.extra_variables.clear()
        before = FaultResult("", environment=home.environment_error(), integrity=home.integrity_error())
        ballast.unlink()
        home.cache = disk / "cache"  # on the same disk, so that uv can create hard links
        result = _check(home, failed, "the disk is full before the install", r"0\.0 GiB are free|No space left")
        return _merge(before, result)


def full_during_download(campaign: Campaign) -> FaultResult:
    """The disk of the environment fills while uv downloads packages."""
    home = campaign.create_home(empty_cache=True)
    with _disk_for_environments(home) as disk:
        home.cache = disk / "cache"
        with install_during_download(home) as (process, index):
            ballast = fill_disk(disk)
            index.stalled = False
            failed = wait_for_exit(process)
        before = FaultResult("", environment=home.environment_error(), integrity=home.integrity_error())
        ballast.unlink()
        return _merge(before, _check(home, failed, "the disk fills during the download", NO_SPACE))


def full_cache_disk(campaign: Campaign) -> FaultResult:
    """The disk of uv's cache fills; the environment is on another disk."""
    home = campaign.create_home(empty_cache=True)
    with mount_tmpfs(home.home / "small", DISK_MIB) as disk:
        home.cache = disk / "cache"
        with install_during_download(home) as (process, index):
            ballast = fill_disk(disk)
            index.stalled = False
            failed = wait_for_exit(process)
        ballast.unlink()
        return home.check(failed, "the disk of the cache fills", NO_SPACE)


def full_log_disk(campaign: Campaign) -> FaultResult:
    home = campaign.create_home()
    with mount_tmpfs(home.home / "small", 4) as disk:
        fill_disk(disk)
        home.extra_variables = {"XDG_STATE_HOME": str(disk / "state")}
        failed = home.run_install(output_format="human")
        home.extra_variables.clear()
        return home.check(failed, "the disk of the logs is full", "the disk of its log is full")


def file_size_limit(campaign: Campaign) -> FaultResult:
    """RLIMIT_FSIZE is smaller than a file of a wheel, as with a quota."""
    home = campaign.create_home(empty_cache=True)
    wheels = home.home / "wheels"
    shutil.copytree(home.wheels, wheels)
    data = b"".join(hashlib.sha256(bytes(str(n), "ascii")).digest() for n in range(40_000))  # incompressible
    set_locked_hash(home, "beta", write_wheel(wheels, "beta", "2.0", files={"beta/data.bin": data}))
    home.extra_variables = {"PIP_FIND_LINKS": str(wheels), "TMPDIR": str(home.home)}
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))"
    failed = home.run_install(code, output_format="human")
    return home.check(failed, "a file size limit (quota)", r"SIGXFSZ|File too large")


@contextlib.contextmanager
def _disk_for_environments(home: FaultHome) -> Iterator[Path]:
    """Move the folder of environments to a small disk."""
    environments = home.venv.parent
    original = environments.with_name("original")
    environments.rename(original)
    with mount_tmpfs(environments, DISK_MIB) as disk:
        subprocess.run(["cp", "-a", f"{original}/.", disk], check=True)
        yield disk
    shutil.rmtree(original)


def _check(home: FaultHome, failed: CommandResult, fault: str, expected: str) -> FaultResult:
    """Check the home; permit uv's cache and the ballast in the folder of environments."""
    result = home.check(failed, fault, expected)
    if result.next_install.startswith("remaining files"):
        permitted = {"mine", "+previous", "cache", "ballast"}
        result.next_install = "" if set(home.remaining_files()) <= permitted else result.next_install
    return result


def _merge(before: FaultResult, result: FaultResult) -> FaultResult:
    """Prefer the checks made while the disk was still full."""
    result.environment = before.environment or result.environment
    result.integrity = before.integrity or result.integrity
    return result
