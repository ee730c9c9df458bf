"""The plan of an install: with the installed lock, the profile's lock, or a newly resolved one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Machine
from envdoctor.core.reporter import Reporter
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, read_sources, uv_environment
from envdoctor.environment.managed import LOCK_FILE, read_install_record
from envdoctor.install.build_jobs import ONE_JOB, BuildJobs, count_jobs
from envdoctor.install.plan import Plan, plan_install, request_digest, sync_arguments
from envdoctor.install.preflight import Availability, check_wheels
from envdoctor.install.wheelhouse import read_wheelhouse
from envdoctor.locking import lock_files as locks
from envdoctor.locking.lock import Lock, Target
from envdoctor.locking.resolve import resolution_error, resolve, target_for_machine
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
    install_system: bool = False,
    upgrade: bool = False,
) -> tuple[Plan, Availability | None]:
    """The plan of an install, and the availability of its wheels if it was already checked.

    `name` is the profile's name or file, next to which its locks are. With `upgrade` no existing lock is used.
    """
    sources = read_sources()
    target = target_for_machine(machine, profile, python)
    profile_locks = _profile_locks(name, profile, target)
    lock, wheels = None, None
    if not upgrade:
        lock = _installed_lock(profile, target, profile_locks, folder)
        if lock is None and profile_locks:
            lock, wheels = _available_lock(profile, list(profile_locks.values()), target, sources, reporter)
    lock = lock or _resolve_lock(profile, target, sources, reporter)
    plan = plan_install(
        profile, lock, folder, sources,
        glibc=machine.system.glibc.value or "", profile_lock=_digest_of(profile_locks.get(lock.python)),
        adopt=adopt, install_system=install_system, jobs=_build_jobs(profile, machine),
    )  # fmt: skip
    return plan, wheels


def choose_offline_plan(
    profile: Profile,
    name: str,
    machine: Machine,
    folder: Path,
    *,
    wheelhouse: Path,
    python: str = "",
    adopt: bool = False,
    install_system: bool = False,
) -> Plan:
    """The plan for wheels that `fetch` downloaded. It uses no package index and downloads no Python."""
    house = read_wheelhouse(wheelhouse, profile.id)
    target = target_for_machine(machine, profile, python)
    if not locks.fits_platform(house.lock, target) or (python and house.lock.python != python):
        raise BadInput(
            f"{house.folder} contains wheels for {house.lock.platform} and Python {house.lock.python}",
            expected=f"wheels for {target.platform}" + (f" and Python {python}" if python else ""),
            hint=shell_command(
                "envdoctor fetch {} --arch {} --glibc {} --dest DIR on a machine with a network",
                profile.id,
                target.architecture,
                target.glibc,
            ),
        )
    profile_locks = _profile_locks(name, profile, target)
    return plan_install(
        profile, house.lock, folder, house.sources,
        glibc=target.glibc, profile_lock=_digest_of(profile_locks.get(house.lock.python)),
        adopt=adopt, install_system=install_system, jobs=_build_jobs(profile, machine),
        offline=True, direct=house.direct,
    )  # fmt: skip


def _build_jobs(profile: Profile, machine: Machine) -> BuildJobs:
    return count_jobs(profile.build, machine) if profile.build else ONE_JOB


def _profile_locks(name: str, profile: Profile, target: Target) -> dict[str, Lock]:
    """The profile's locks for a target by Python version, without those that no longer match the profile."""
    found = {python: lock for python in target.pythons if (lock := locks.find_lock(name, target, python))}
    return {python: lock for python, lock in found.items() if not any(locks.unmet_requirements(profile, lock))}


def _digest_of(lock: Lock | None) -> str:
    return lock.digest if lock else ""


def _installed_lock(profile: Profile, target: Target, profile_locks: dict[str, Lock], folder: Path) -> Lock | None:
    """The lock of the existing environment, if it was installed for the same request."""
    record = read_install_record(folder)
    digests = {
        request_digest(profile, target.architecture, python, _digest_of(profile_locks.get(python)))
        for python in target.pythons
    }
    return read_environment_lock(folder) if record and record.request in digests else None


def read_environment_lock(venv: Path) -> Lock | None:
    """The lock inside an environment that envdoctor installed; None if it cannot be read."""
    try:
        return locks.read_lock(venv / LOCK_FILE)
    except BadInput:
        return None


def _available_lock(
    profile: Profile, profile_locks: Sequence[Lock], target: Target, sources: Sources, reporter: Reporter
) -> tuple[Lock | None, Availability | None]:
    """The profile's lock; if the sources lack some of its wheels, a lock with other wheels of the same versions.

    None if neither is available.
    """
    reporter.phase(f"Using the versions of {profile.id}'s lock for {target.platform}")
    for profile_lock in profile_locks:
        for backend in dict.fromkeys(source.backend for source in profile.sources):
            lock = msgspec.structs.replace(profile_lock, backend=backend)
            wheels = check_wheels(lock, sync_arguments(lock, sources), uv_environment(sources))
            if not (wheels.problem or lock.without):
                return lock, wheels
    for profile_lock in profile_locks:
        one_python = msgspec.structs.replace(target, pythons=(profile_lock.python,))
        pinned = locks.pin_to_lock(profile, profile_lock)
        resolution = resolve(pinned, one_python, sources, reporter.attempt)
        if resolution.lock:
            return resolution.lock, None
    return None, None


def _resolve_lock(profile: Profile, target: Target, sources: Sources, reporter: Reporter) -> Lock:
    """Resolve the profile; the error lists every source that was tried."""
    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    resolution = resolve(profile, target, sources, reporter.attempt)
    if resolution.lock is None:
        raise resolution_error(resolution, sources)
    return resolution.lock
