"""Carry out a plan: build beside the current environment, check it, and only then let it take its place."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from envdoctor import __version__
from envdoctor.environments import LOCK_FILE, Installed, read_installed, refuse_foreign, write_installed
from envdoctor.errors import BadInput, EnvdoctorError, Refused
from envdoctor.facts.storage import read_filesystem
from envdoctor.model import Record
from envdoctor.plan import Plan, Step
from envdoctor.resolve import Lock
from envdoctor.uv import is_unreachable, reason, run_uv, unreachable

GIB = 1 << 30
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


def check_before(plan: Plan) -> None:
    """Refuse a target that is not ours and a disk that is too small, before anything is written."""
    venv = Path(plan.venv)
    refuse_foreign(venv)
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


def install(plan: Plan, log: Path, on_progress: Callable[[Progress], None]) -> InstallResult:
    """Build the environment and swap it in; the current one stays as it was until the last step."""
    started = time.monotonic()
    venv, staging = Path(plan.venv), Path(plan.staging)
    check_before(plan)
    present = read_installed(venv)
    if present and present.lock == plan.lock.digest and (venv / "bin/python").exists():
        return InstallResult(str(venv), str(venv / "bin/python"), present, (), 0.0, "", unchanged=True)
    with _only_one(venv):
        shutil.rmtree(staging, ignore_errors=True)  # what an interrupted install left
        records = tuple(_run_step(plan, number, log, on_progress) for number in range(len(plan.steps)))
        guard_drift(staging, plan.lock)
        installed = _describe(plan, staging)
        write_installed(staging, installed)
        _swap(staging, venv)
    return InstallResult(
        str(venv), str(venv / "bin/python"), installed, records, time.monotonic() - started, str(log)
    )


def guard_drift(venv: Path, lock: Lock) -> None:
    """Refuse an environment whose packages are not exactly the lock's."""
    found = {}
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        found[normalised(name)] = version
    wanted = {normalised(package.name): package.version for package in lock.packages}
    wrong = [f"{n}: {found.get(n, 'missing')}, locked {v}" for n, v in wanted.items() if found.get(n) != v]
    wrong += [f"{name} {found[name]}: not in the lock" for name in found.keys() - wanted.keys()]
    if wrong:
        raise Refused(
            f"the environment in {venv} is not what the lock says: {'; '.join(sorted(wrong)[:5])}",
            expected="every package at its locked version, and no other",
            hint="envdoctor install again; the current environment was not touched",
        )


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _run_step(plan: Plan, number: int, log: Path, on_progress: Callable[[Progress], None]) -> StepRecord:
    step = plan.steps[number]
    if step.name == "sync":
        Path(plan.staging, LOCK_FILE).write_text(plan.lock.text)
    meter = DownloadMeter()

    def report(text: str) -> None:
        meter.read(text)
        on_progress(Progress(number + 1, len(plan.steps), step.title, meter.done, meter.total, meter.doing))

    report("")
    result = run_uv(step.arguments, environment=plan.environment, deadline=step.deadline, log=log, poll=report)
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
    return EnvdoctorError(
        f"{step.title}: uv {ending}: {reason(output)}",
        expected="exit code 0",
        hint=f"read the log {log}; the current environment was not touched",
    )


class DownloadMeter:
    """Bytes downloaded, read from what uv prints: `Downloading torch (182.9MiB)`, later ` Downloaded torch`."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.finished: set[str] = set()
        self.doing = ""

    @property
    def total(self) -> int:
        """Bytes of all announced downloads."""
        return sum(self.sizes.values())

    @property
    def done(self) -> int:
        """Bytes of the finished ones."""
        return sum(size for name, size in self.sizes.items() if name in self.finished)

    def read(self, text: str) -> None:
        """Take in new lines of uv's output."""
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


def _swap(staging: Path, venv: Path) -> None:
    """Let the finished environment take the place of the old one, which goes only when the new one stands."""
    old = venv.with_name(f".{venv.name}.previous")
    shutil.rmtree(old, ignore_errors=True)
    if venv.exists():
        venv.rename(old)
    try:
        staging.rename(venv)
    except OSError:
        if old.exists():
            old.rename(venv)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _only_one(venv: Path) -> Iterator[None]:
    """Hold the lock of this target; a second install says who holds it."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    path = venv.with_name(f".{venv.name}.lock")
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise EnvdoctorError(
                f"another install of {venv} is running (process {file.read().strip() or 'unknown'})",
                expected="one install at a time",
                hint="wait for it to end, then run this again",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
        path.unlink(missing_ok=True)
