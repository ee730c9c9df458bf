"""The plan of an install: with the installed lock, the profile's lock, or a newly resolved one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Machine
from envdoctor.core.reporter import Reporter
from envdoctor.download.sources import Sources, read_sources, uv_environment
from envdoctor.environment.managed import LOCK_FILE, read_install_record
from envdoctor.install.build_jobs import ONE_JOB, Jobs, count_jobs
from envdoctor.install.plan import Plan, plan_install, request_digest, sync_arguments
from envdoctor.install.preflight import Availability, ask_for_wheels
from envdoctor.install.wheelhouse import read_wheelhouse
from envdoctor.locking import lock_files as locks
from envdoctor.locking.lock_files import LockFile, fits_platform, read_lock
from envdoctor.locking.resolve import Lock, Target, failure, target_for
from envdoctor.locking.resolve import resolve as run_resolve
from envdoctor.profiles import Profile


def choose_plan(
    profile: Profile,
    name: str,
    machine: Machine,
    folder: Path,
    reporter: Reporter,
    *,
    python: str = "",
    adopt: bool = False,
    upgrade: bool = False,
) -> tuple[Plan, Availability | None]:
    """The plan of an install, and the availability of its wheels where it was already requested.

    `name` is the profile's name or file, next to which its locks are. With `upgrade` no existing lock is used.
    """
    sources = read_sources()
    target = target_for(machine, profile, python)
    files = _profile_locks(name, profile, target)
    lock, wheels = None, None
    if not upgrade:
        lock = _installed_lock(profile, target, files, folder)
        if lock is None and files:
            lock, wheels = _available_lock(profile, list(files.values()), target, sources, reporter)
    lock = lock or _resolve_lock(profile, target, sources, reporter)
    plan = plan_install(
        profile, lock, folder, sources,
        glibc=machine.system.glibc.value or "", kept=_digest_of(files.get(lock.python)), adopt=adopt,
        jobs=_build_jobs(profile, machine),
    )  # fmt: skip
    return plan, wheels


def _build_jobs(profile: Profile, machine: Machine) -> Jobs:
    """How many compilers the builds of a profile may start on this machine."""
    return count_jobs(profile.build, machine) if profile.build else ONE_JOB


def _profile_locks(name: str, profile: Profile, target: Target) -> dict[str, LockFile]:
    """The profile's locks for a target by Python version, without those that no longer match the profile."""
    found = {python: file for python in target.pythons if (file := locks.kept_lock(name, target, python))}
    return {python: file for python, file in found.items() if not any(locks.unmet(profile, file))}


def _digest_of(file: LockFile | None) -> str:
    return file.lock.digest if file else ""


def choose_offline_plan(
    profile: Profile,
    name: str,
    machine: Machine,
    folder: Path,
    *,
    wheelhouse: Path,
    python: str = "",
    adopt: bool = False,
) -> Plan:
    """The plan for wheels that `fetch` downloaded. It uses no package index and downloads no Python."""
    house = read_wheelhouse(wheelhouse, profile.id)
    target = target_for(machine, profile, python)
    if not fits_platform(house.lock, target) or (python and house.lock.python != python):
        raise BadInput(
            f"{house.folder} holds wheels for {house.lock.platform} and Python {house.lock.python}",
            expected=f"wheels for {target.platform}" + (f" and Python {python}" if python else ""),
            hint=f"envdoctor fetch --profile {profile.id} --arch {target.architecture} "
            f"--glibc {target.glibc} --dest DIR, where there is a network",
        )
    files = _profile_locks(name, profile, target)
    plan = plan_install(
        profile, house.lock.lock, folder, house.sources,
        glibc=target.glibc, kept=_digest_of(files.get(house.lock.python)), adopt=adopt,
        jobs=_build_jobs(profile, machine),
    )  # fmt: skip
    offline = plan.environment | {"UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}
    return msgspec.structs.replace(plan, environment=offline, direct=house.direct)


def _installed_lock(profile: Profile, target: Target, files: dict[str, LockFile], folder: Path) -> Lock | None:
    """The lock of the existing environment, if it was installed for the same request."""
    installed = read_install_record(folder)
    digests = {
        request_digest(profile, target.architecture, python, _digest_of(files.get(python)))
        for python in target.pythons
    }
    return read_environment_lock(folder) if installed and installed.request in digests else None


def read_environment_lock(venv: Path) -> Lock | None:
    """The lock inside an environment that envdoctor installed; None if it cannot be read."""
    try:
        file = read_lock(venv / LOCK_FILE)
    except BadInput:
        return None
    return file.lock if file else None


def _available_lock(
    profile: Profile, files: Sequence[LockFile], target: Target, sources: Sources, reporter: Reporter
) -> tuple[Lock | None, Availability | None]:
    """The profile's lock; if the sources lack some of its wheels, a lock with other wheels of the same versions.

    None if neither is available.
    """
    reporter.phase(f"Using the versions of {profile.id}'s lock for {target.platform}")
    for file in files:
        for backend in dict.fromkeys(source.backend for source in profile.sources):
            lock = msgspec.structs.replace(file.lock, backend=backend)
            wheels = ask_for_wheels(lock, sync_arguments(lock, sources), uv_environment(sources))
            if not (wheels.problem or file.without):
                return lock, wheels
    for file in files:
        one_python = msgspec.structs.replace(target, pythons=(file.python,))
        resolution = run_resolve(locks.held(profile, file), one_python, sources, reporter.attempt)
        if resolution.lock:
            return resolution.lock, None
    return None, None


def _resolve_lock(profile: Profile, target: Target, sources: Sources, reporter: Reporter) -> Lock:
    """Resolve the profile; the error lists every source that was tried."""
    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    resolution = run_resolve(profile, target, sources, reporter.attempt)
    if resolution.lock is None:
        raise failure(resolution, sources)
    return resolution.lock
