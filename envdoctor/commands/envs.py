"""`envdoctor envs`: list the environments that envdoctor installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.environment.managed import (
    EnvironmentPaths,
    InstallRecord,
    is_foreign,
    read_install_record,
    size_on_disk,
)
from envdoctor.install.environment_lock import is_running
from envdoctor.install.journal import read_journal, unfinished_install
from envdoctor.install.known_environments import known_environments
from envdoctor.verify.status import (
    BenchmarkStatus,
    VerificationState,
    VerificationStatus,
    read_benchmark_status,
    read_driver_and_gpus,
    read_verification_status,
    verification_state,
)


class EnvironmentEntry(Record, frozen=True, kw_only=True):
    """One environment: a current or a replaced one."""

    path: str
    profile: str
    lock: str  # digest; empty if envdoctor did not create the environment
    python: str
    size: int
    created: str
    state: Literal["current", "previous", "unfinished", "broken"]
    verified: VerificationState
    note: str = ""
    verification: VerificationStatus | None = None  # None: its probes were not run
    benchmark: BenchmarkStatus | None = None


class EnvironmentList(Record, frozen=True):
    """Every known environment."""

    environments: tuple[EnvironmentEntry, ...]


class EnvsRequest(Record, frozen=True):
    """Prints profile, lock, size and verification of each, and of the environments that they replaced.

    Example: envdoctor envs
    """


def run(_request: EnvsRequest) -> CommandResult:
    """List every environment with its content and its verification on the present driver."""
    entries = (entry for environment in known_environments() for entry in _entries_of(environment))
    return CommandResult(EnvironmentList(tuple(entries)))


def _entries_of(environment: EnvironmentPaths) -> Iterator[EnvironmentEntry]:
    last = unfinished_install(read_journal(environment.journal).entries)
    if installed := read_install_record(environment.venv):
        has_interpreter = (environment.venv / "bin/python").exists()
        yield _entry(environment.venv, installed, "current" if has_interpreter else "broken")
    elif last:
        ended = f"its install ended in '{last.step}' without an exit code: run envdoctor install again"
        yield EnvironmentEntry(
            path=str(environment.venv), profile="", lock="", python="", size=0, created=last.at, state="unfinished",
            verified="no", note=f"process {last.process} is building it" if is_running(str(last.process)) else ended,
        )  # fmt: skip
    elif is_foreign(environment.venv):
        yield _entry(environment.venv, None, "current")
    if environment.previous.is_dir():
        yield _entry(environment.previous, read_install_record(environment.previous), "previous")
    for path in environment.adopted_environments:
        yield _entry(path, None, "previous")


def _entry(
    path: Path, installed: InstallRecord | None, state: Literal["current", "previous", "broken"]
) -> EnvironmentEntry:
    if installed is None:
        return EnvironmentEntry(
            path=str(path), profile="", lock="", python="", size=size_on_disk(path), created="", state=state,
            verified="no", note="not created by envdoctor",
        )  # fmt: skip
    note = "; ".join(f"no wheel of {name} fitted: {use} instead" for name, use in installed.fallbacks.items())
    driver, gpus = read_driver_and_gpus()
    verification = read_verification_status(path / "bin/python", driver, gpus)
    return EnvironmentEntry(
        path=str(path), profile=installed.profile, lock=installed.lock, python=installed.python, size=installed.size,
        created=installed.created, state=state, verified=verification_state(verification), verification=verification,
        benchmark=read_benchmark_status(path / "bin/python", driver, gpus),
        note=note if state != "broken" else "it has no interpreter: run envdoctor install again",
    )  # fmt: skip
