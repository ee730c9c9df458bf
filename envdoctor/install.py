"""Carry out a plan: build beside the current environment, check it, and only then let it take its place."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec
from packaging.version import Version

from envdoctor import __version__
from envdoctor.environments import LOCK_FILE, Installed, read_installed, refuse_foreign, write_installed
from envdoctor.errors import BadInput, EnvdoctorError, Refused
from envdoctor.facts.storage import read_filesystem
from envdoctor.model import Record
from envdoctor.plan import Plan, Step
from envdoctor.process import ended_as_by_ctrl_c
from envdoctor.resolve import Lock
from envdoctor.uv import is_unreachable, reason, run_uv, unreachable

GIB = 1 << 30
ORPHAN_SECONDS = 120.0  # how long the uv of an install that was killed is waited for
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class StepRecord(Record, frozen=True):
    """How one step went."""

    name: str
    seconds: float
    exit_code: int


class InstallResult(Record, frozen=True):
    """What an install did."""

    venv: str
    python: str
    installed: Installed
    steps: tuple[StepRecord, ...]
    seconds: float
    log: str
    unchanged: bool = False  # the same lock was already there


class Progress(Record, frozen=True):
    """Where an install stands. Bytes are those of the wheels that uv downloads; 0 while nothing is downloaded."""

    step: int
    steps: int
    title: str
    downloaded: int
    to_download: int
    doing: str


def install(plan: Plan, log: Path, on_progress: Callable[[Progress], None]) -> InstallResult:
    """Build the environment and swap it in; the current one stays as it was until the last step."""
    started = time.monotonic()
    venv = Path(plan.venv)
    refuse_foreign(venv)
    if not read_current(plan):
        check_room(plan)
    try:
        with ended_as_by_ctrl_c(), _only_one(venv) as held:
            _clear_leftovers(plan)
            if present := read_current(plan):
                current = _as_planned(present, plan)
                return InstallResult(str(venv), str(venv / "bin/python"), current, (), 0.0, "", unchanged=True)
            records, installed = _build(plan, log, on_progress, held)
    except OSError as error:
        raise EnvdoctorError(
            f"{error.filename or venv}: {error.strerror or error}",
            expected=f"a folder of yours with room for {venv}",
            hint="envdoctor install --venv PATH; the current environment was not touched",
        ) from error
    seconds = time.monotonic() - started
    return InstallResult(str(venv), str(venv / "bin/python"), installed, records, seconds, str(log))


def check_room(plan: Plan) -> None:
    """Refuse a disk that is too small and a folder that cannot be written to, before anything is written."""
    venv = Path(plan.venv)
    place = read_filesystem(venv, {}).value
    if place is not None and place.free < plan.disk_gb * GIB:
        raise BadInput(
            f"{place.free / GIB:.1f} GiB are free where {venv} would be",
            expected=f"at least {plan.disk_gb:g} GiB for profile '{plan.profile}'",
            hint="envdoctor install --venv /a/larger/disk/NAME, or free some room",
        )
    parent = next(place for place in venv.parents if place.exists())
    if not os.access(parent, os.W_OK):
        raise BadInput(
            f"{parent} cannot be written to",
            expected="a folder of yours",
            hint="envdoctor install --venv PATH",
        )


def read_current(plan: Plan) -> Installed | None:
    """The marker of the environment if it holds exactly what the plan would build."""
    venv = Path(plan.venv)
    present = read_installed(venv)
    if present is None or present.lock != plan.lock.digest or not (venv / "bin/python").exists():
        return None
    return None if drift(venv, plan.lock) else present


def _as_planned(present: Installed, plan: Plan) -> Installed:
    """The marker with what the profile says of these same packages today: its probes and its variables."""
    current = msgspec.structs.replace(
        present, profile=plan.profile, required=plan.required_probes, environment=plan.run_environment
    )
    if current != present:
        write_installed(Path(plan.venv), current)
    return current


def _build(
    plan: Plan, log: Path, on_progress: Callable[[Progress], None], held: TextIO
) -> tuple[tuple[StepRecord, ...], Installed]:
    """Build in the staging folder and swap it in; what fails or is interrupted leaves nothing behind."""
    venv, staging = Path(plan.venv), Path(plan.staging)
    try:
        records = tuple(_run_step(plan, number, log, on_progress, held) for number in range(len(plan.steps)))
        guard_drift(staging, plan.lock)
        installed = _describe(plan, staging)
        write_installed(staging, installed)
        _swap(staging, venv)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return records, installed


def guard_drift(venv: Path, lock: Lock) -> None:
    """Refuse an environment whose packages are not exactly the lock's."""
    if wrong := drift(venv, lock):
        raise Refused(
            f"the environment in {venv} is not what the lock says: {'; '.join(wrong[:5])}",
            expected="every package at its locked version, and no other",
            hint="envdoctor install again; the current environment was not touched",
        )


def drift(venv: Path, lock: Lock) -> list[str]:
    """How the packages of an environment differ from the lock's."""
    found = {}
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        found[normalised(name)] = version
    wanted = {normalised(package.name): package.version for package in lock.packages}
    wrong = [
        f"{name}: {found.get(name, 'missing')}, locked {version}"
        for name, version in wanted.items()
        if name not in found or Version(found[name]) != Version(version)
    ]
    return sorted(wrong + [f"{name} {found[name]}: not in the lock" for name in found.keys() - wanted.keys()])


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _run_step(
    plan: Plan, number: int, log: Path, on_progress: Callable[[Progress], None], held: TextIO
) -> StepRecord:
    step = plan.steps[number]
    if step.name == "sync":
        Path(plan.staging, LOCK_FILE).write_text(plan.lock.text)
    meter = DownloadMeter()

    def report(text: str) -> None:
        meter.read(text)
        on_progress(Progress(number + 1, len(plan.steps), step.title, meter.done, meter.total, meter.doing))

    report("")
    result = run_uv(
        step.arguments,
        environment=plan.environment,
        deadline=step.deadline,
        log=log,
        poll=report,
        keep_open=(held.fileno(),),
    )
    if not result.ok:
        raise _step_failed(step, result.output if not result.timed_out else result.ending, result.ending, log)
    return StepRecord(step.name, result.seconds, result.returncode)


def _step_failed(step: Step, output: str, ending: str, log: Path) -> EnvdoctorError:
    if is_unreachable(output):
        return EnvdoctorError(
            f"{step.title}: {unreachable(output)}",
            expected="the sources that the profile was resolved from",
            hint=f"check the network and run the same command again; the log is {log}",
        )
    error = EnvdoctorError(
        f"{step.title}: uv {ending}: {reason(output)}",
        expected="exit code 0",
        hint=f"read the log {log}; the current environment was not touched",
    )
    error.log = str(log)
    return error


class DownloadMeter:
    """Bytes downloaded, read from what uv prints: `Downloading torch (182.9MiB)`, later ` Downloaded torch`."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.finished: set[str] = set()
        self.doing = ""
        self.begun = ""  # a line whose end is not there yet

    @property
    def total(self) -> int:
        """Bytes of all announced downloads."""
        return sum(self.sizes.values())

    @property
    def done(self) -> int:
        """Bytes of the finished ones."""
        return sum(size for name, size in self.sizes.items() if name in self.finished)

    def read(self, text: str) -> None:
        """Take in what is new of uv's output."""
        text, _, self.begun = (self.begun + text).rpartition("\n")
        for name, size, unit in re.findall(r"Downloading (\S+) \(([\d.]+)([KMG]?i?B)\)", text):
            self.sizes[name] = int(float(size) * SIZES.get(unit, 1))
        self.finished.update(re.findall(r"Downloaded (\S+)", text))
        if lines := [line.strip() for line in text.splitlines() if line.strip()]:
            self.doing = lines[-1]


def _describe(plan: Plan, staging: Path) -> Installed:
    torch = next((package for package in plan.lock.packages if package.name == "torch"), None)
    return Installed(
        profile=plan.profile,
        lock=plan.lock.digest,
        torch_build=plan.lock.torch_build,
        torch_source=torch.source if torch else "",
        packages=len(plan.lock.packages),
        size=size_on_disk(staging),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        required=plan.required_probes,
        environment=plan.run_environment,
        envdoctor=__version__,
    )


def size_on_disk(folder: Path) -> int:
    """Bytes that the files below a folder take, links not followed."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118  ten thousands of files
    return total


def _clear_leftovers(plan: Plan) -> None:
    """Undo what an install left that was killed: half an environment, or a swap between its two renames."""
    venv, previous = Path(plan.venv), _previous(Path(plan.venv))
    if previous.exists() and not venv.exists():
        previous.rename(venv)
    for folder in (previous, Path(plan.staging)):
        shutil.rmtree(folder, ignore_errors=True)


def _previous(venv: Path) -> Path:
    return venv.with_name(f".{venv.name}.previous")


def _swap(staging: Path, venv: Path) -> None:
    """Let the finished environment take the place of the old one, which is then where the new one was built."""
    if not venv.exists():
        staging.rename(venv)
    elif not exchange(staging, venv):
        old = _previous(venv)
        venv.rename(old)
        try:
            staging.rename(venv)
        except OSError:
            old.rename(venv)
            raise
        old.rename(staging)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one atomic step; False where the C library or the file system cannot (NFS, musl)."""
    at_working_directory, rename_exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: renameat2(2)
    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(at_working_directory, paths[0], at_working_directory, paths[1], rename_exchange) == 0)


@contextmanager
def _only_one(venv: Path) -> Iterator[TextIO]:
    """Hold the lock of this target; a second install says who holds it.

    uv inherits the open file: as long as it writes, the lock is held, though the install itself may have been killed.
    """
    venv.parent.mkdir(parents=True, exist_ok=True)
    path = venv.with_name(f".{venv.name}.lock")
    with _locked_file(path, venv) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield file
        finally:
            path.unlink(missing_ok=True)


def _locked_file(path: Path, venv: Path) -> TextIO:
    """The lock file, open and locked; the uv of an install that was killed is waited for."""
    end = time.monotonic() + ORPHAN_SECONDS
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file):
                return file  # else the last holder has just taken the file away
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            if _is_running(holder) or time.monotonic() > end:
                file.close()
                raise EnvdoctorError(
                    f"another install of {venv} is running (process {holder or 'unknown'})",
                    expected="one install at a time",
                    hint="wait for it to end, then run this again",
                ) from None
        file.close()
        time.sleep(0.1)


def _is_at(path: Path, file: TextIO) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _is_running(process: str) -> bool:
    """Whether a process of this number runs; one that has not written its number yet does."""
    return not process.isdigit() or Path("/proc", process).exists()
