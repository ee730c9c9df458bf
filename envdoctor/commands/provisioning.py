"""Environments, from the request to the result: install, go back, list, clear up."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from envdoctor.commands import diagnosis
from envdoctor.core.directories import cache_directory, state_directory
from envdoctor.core.errors import BadInput, Refused
from envdoctor.core.paths import expanded
from envdoctor.core.records import Candidate, Choice, Machine, Record
from envdoctor.core.results import Answer, Planned
from envdoctor.machine.select import select_machine
from envdoctor.machine.storage import environments_directory
from envdoctor.profiles import DISK, Profile, advice, choose, read_candidates, read_profile, violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.download.sources import Sources
    from envdoctor.install.build_jobs import Jobs
    from envdoctor.install.plan import Plan
    from envdoctor.install.preflight import Availability
    from envdoctor.install.progress import Progress
    from envdoctor.locking.lock_files import LockFile
    from envdoctor.locking.resolve import Attempt, Lock, Target


class Reporter(Protocol):
    """What shows progress."""

    def phase(self, title: str) -> None: ...  # noqa: D102
    def attempt(self, attempt: Attempt) -> None: ...  # noqa: D102
    def installing(self, progress: Progress) -> None: ...  # noqa: D102


class InstallRequest(Record, frozen=True):
    """What `install` was asked for."""

    profile: str = ""
    venv: str = ""
    python: str = ""  # "3.12"
    wheels: str = ""  # a folder that `fetch` filled
    dry_run: bool = False
    force: bool = False  # though the profile's conditions do not hold
    adopt: bool = False  # though the environment that is there is somebody else's
    system: bool = False  # install what the system lacks, too
    upgrade: bool = False  # resolve anew instead of keeping what is locked


def install(request: InstallRequest, reporter: Reporter) -> Answer:
    """Build a profile's environment (the one that fits this machine best, unless one is named)."""
    from envdoctor.environment.managed import EnvironmentPaths, check_replaceable
    from envdoctor.install.environment_lock import check_unlocked
    from envdoctor.install.install import install as run_install
    from envdoctor.install.lock_check import guard_coherence
    from envdoctor.install.plan import shell_lines
    from envdoctor.locking.audit import audit_of

    machine = select_machine("", ())
    named = request.profile
    profile = read_profile(named) if named else chosen_profile(choose(machine, read_candidates()))
    # Room is judged where the environment will really lie, by the install itself.
    candidate = choose(machine, [profile]).candidates[0]
    violated = describe_violations(candidate, leave_out=DISK)
    advised = tuple(f"{c.name} is {c.observed}, recommended {c.expected}" for c in advice(candidate))
    if violated and not (request.force or request.dry_run):
        raise Refused(
            f"profile '{profile.id}' does not fit this machine: {'; '.join(violated)}",
            expected="a machine that meets the profile's conditions",
            hint=f"envdoctor check, or envdoctor install --profile {profile.id} --force",
        )
    folder = (expanded(request.venv) if request.venv else default_venv(profile.id)).absolute()
    check_replaceable(folder, adopt=request.adopt)
    if not request.dry_run:
        check_unlocked(EnvironmentPaths(folder))  # before any source is asked
    plan, wheels = _plan(profile, request, machine, folder, reporter)
    plan = msgspec.structs.replace(plan, install_system=request.system)
    if not request.force:  # before anything is downloaded; the environment itself is judged again at the end
        guard_coherence(audit_of(plan.lock, machine))
    if request.dry_run:
        return Answer(Planned(profile.id, plan.venv, tuple(shell_lines(plan)), plan.lock, not violated, violated))
    with diagnosis.explaining(machine, None):
        log = log_file("install", profile.id)
        result = run_install(plan, machine, log, cache_directory(), reporter.installing, wheels=wheels)
    register_environment(folder)
    return Answer(msgspec.structs.replace(result, advice=advised))


def _plan(
    profile: Profile, request: InstallRequest, machine: Machine, folder: Path, reporter: Reporter
) -> tuple[Plan, Availability | None]:
    """The plan for what was asked: the lock that is installed, the profile's own, or one resolved now."""
    from envdoctor.download.sources import read_sources
    from envdoctor.install.plan import plan_install

    if request.wheels:
        return _plan_from_folder(profile, request, machine, folder), None
    sources = read_sources()
    target = target_for(machine, profile, request.python)
    files = kept_locks(request.profile or profile.id, profile, target)
    lock, wheels = None, None
    if not request.upgrade:
        lock = _installed_lock(profile, target, files, folder)
        if lock is None and files:
            lock, wheels = _kept_lock(profile, list(files.values()), target, sources, reporter)
    lock = lock or _resolved_lock(profile, target, sources, reporter)
    glibc, kept = machine.system.glibc.value or "", digest_of(files.get(lock.python))
    jobs = jobs_of(profile, machine)
    plan = plan_install(profile, lock, folder, sources, glibc=glibc, kept=kept, adopt=request.adopt, jobs=jobs)
    return plan, wheels


def jobs_of(profile: Profile, machine: Machine) -> Jobs:
    """How many compilers a profile's builds may start here."""
    from envdoctor.install.build_jobs import ONE_JOB, count_jobs

    return count_jobs(profile.build, machine) if profile.build else ONE_JOB


def kept_locks(name: str, profile: Profile, target: Target) -> dict[str, LockFile]:
    """The profile's own locks for a target, by Python, those left out that the profile has outgrown."""
    from envdoctor.locking import lock_files as locks

    found = {python: file for python in target.pythons if (file := locks.kept_lock(name, target, python))}
    return {python: file for python, file in found.items() if not any(locks.unmet(profile, file))}


def digest_of(file: LockFile | None) -> str:
    """The digest of a lock, empty for none."""
    return file.lock.digest if file else ""


def _plan_from_folder(profile: Profile, request: InstallRequest, machine: Machine, folder: Path) -> Plan:
    """The plan for wheels that `fetch` brought: nothing else is asked, no index and nobody for a Python."""
    from envdoctor.install.plan import plan_install
    from envdoctor.install.wheelhouse import read_wheelhouse
    from envdoctor.locking.lock_files import fits_platform

    house = read_wheelhouse(Path(request.wheels), profile.id)
    target = target_for(machine, profile, request.python)
    if not fits_platform(house.lock, target) or (request.python and house.lock.python != request.python):
        wanted = f" and Python {request.python}" if request.python else ""
        raise BadInput(
            f"{house.folder} holds wheels for {house.lock.platform} and Python {house.lock.python}",
            expected=f"wheels for {target.platform}{wanted}",
            hint=f"envdoctor fetch --profile {profile.id} --arch {target.architecture} "
            f"--glibc {target.glibc} --dest DIR, where there is a network",
        )
    files = kept_locks(request.profile or profile.id, profile, target)
    plan = plan_install(
        profile, house.lock.lock, folder, house.sources,
        glibc=target.glibc, kept=digest_of(files.get(house.lock.python)), adopt=request.adopt,
        jobs=jobs_of(profile, machine),
    )  # fmt: skip
    offline = plan.environment | {"UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}
    return msgspec.structs.replace(plan, environment=offline, direct=house.direct)


def _installed_lock(profile: Profile, target: Target, files: dict[str, LockFile], folder: Path) -> Lock | None:
    """The lock of the environment that is there, if it was made for this very request."""
    from envdoctor.environment.managed import read_install_record
    from envdoctor.install.plan import request_digest

    installed = read_install_record(folder)
    wanted = {
        request_digest(profile, target.architecture, python, digest_of(files.get(python)))
        for python in target.pythons
    }
    return read_lock_of(folder) if installed and installed.request in wanted else None


def read_lock_of(venv: Path) -> Lock | None:
    """The lock that lies inside an environment of ours; None where it cannot be read."""
    from envdoctor.environment.managed import LOCK_FILE
    from envdoctor.locking.lock_files import read_lock

    try:
        file = read_lock(venv / LOCK_FILE)
    except BadInput:
        return None
    return file.lock if file else None


def _kept_lock(
    profile: Profile, files: Sequence[LockFile], target: Target, sources: Sources, reporter: Reporter
) -> tuple[Lock | None, Availability | None]:
    """The profile's own lock; with other wheels of the same versions where the sources lack some; else None."""
    from envdoctor.download.sources import uv_environment
    from envdoctor.install.plan import sync_arguments
    from envdoctor.install.preflight import ask_for_wheels
    from envdoctor.locking import lock_files as locks
    from envdoctor.locking.resolve import resolve as run_resolve

    reporter.phase(f"Taking the versions of {profile.id}'s lock for {target.platform}")
    for file in files:
        for backend in dict.fromkeys(source.backend for source in profile.sources):
            lock = msgspec.structs.replace(file.lock, backend=backend)
            wheels = ask_for_wheels(lock, sync_arguments(lock, sources), uv_environment(sources))
            if not (wheels.problem or file.without):
                return lock, wheels
    for file in files:
        wanted = msgspec.structs.replace(target, pythons=(file.python,))
        resolution = run_resolve(locks.held(profile, file), wanted, sources, reporter.attempt)
        if resolution.lock:
            return resolution.lock, None
    return None, None


def _resolved_lock(profile: Profile, target: Target, sources: Sources, reporter: Reporter) -> Lock:
    """The lock of a profile, or the error that tells everything that was tried."""
    from envdoctor.locking.resolve import failure
    from envdoctor.locking.resolve import resolve as run_resolve

    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    resolution = run_resolve(profile, target, sources, reporter.attempt)
    if resolution.lock is None:
        raise failure(resolution, sources)
    return resolution.lock


def target_for(machine: Machine, profile: Profile, python: str) -> Target:
    """What to resolve for: the machine's platform, and the Python that was asked for or those that fit."""
    from envdoctor.locking.resolve import target_of

    target = target_of(machine, profile)
    if python and python not in profile.python.versions:
        raise BadInput(
            f"--python {python}",
            expected="one of " + ", ".join(profile.python.versions),
            hint=f"envdoctor profiles show {profile.id}",
        )
    return msgspec.structs.replace(target, pythons=(python,)) if python else target


def chosen_profile(choice: Choice) -> Profile:
    """The profile of a choice, or the error that says what would have to change."""
    if choice.profile is None:
        raise Refused(choice.reason, expected="a machine that some profile fits", hint="envdoctor check")
    return read_profile(choice.profile)


def describe_violations(candidate: Candidate, leave_out: str = "") -> tuple[str, ...]:
    """What a machine lacks for a profile."""
    wrong = [condition for condition in violations(candidate) if condition.name != leave_out]
    return tuple(f"{c.name}: {c.observed}, needed {c.expected}" for c in wrong)


def default_venv(profile: str) -> Path:
    """Where a profile's environment lies unless told otherwise."""
    return environments_directory(os.environ) / Path(profile).stem


def log_file(command: str, name: str) -> Path:
    """A new log for a command."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return state_directory() / "logs" / f"{command}-{Path(name).stem}-{stamp}.log"


def environments_file() -> Path:
    """A line for each environment that was ever made, wherever it lies."""
    return state_directory() / "environments"


def register_environment(venv: Path) -> None:
    """Note where an environment lies, so that `envs` finds it."""
    import contextlib

    path = environments_file()
    with contextlib.suppress(OSError):  # without the note the environment is as good
        path.parent.mkdir(parents=True, exist_ok=True)
        known = path.read_text(errors="replace").splitlines() if path.exists() else []
        if str(venv) not in known:
            with path.open("a") as file:
                file.write(f"{venv}\n")
