"""Create the lock of a profile for one platform and Python version, with the size of each wheel."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from packaging.requirements import Requirement

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.reporter import Reporter
from envdoctor.download.http_client import new_http_client
from envdoctor.download.sources import Sources
from envdoctor.locking.lock import Lock, Package, Target
from envdoctor.locking.resolve import TORCH_FAMILY, Resolution, resolve
from envdoctor.locking.torch_index import published_sizes, resolve_published
from envdoctor.locking.wheel_urls import SIZES_SECONDS, locate_available_files, with_file_sizes
from envdoctor.profiles import Profile

# A lock created without the PyTorch index omits the packages that only this index has, and the CUDA libraries that
# only the CUDA build requires.
CUDA_LIBRARIES = ("nvidia-", "cuda-")


class CreatedLock(NamedTuple):
    """A lock, or the reason for which there is none. `unreachable`: it is unknown whether there could be one."""

    lock: Lock | None
    reason: str = ""
    unreachable: bool = False


def create_lock(profile: Profile, target: Target, sources: Sources, reporter: Reporter) -> CreatedLock:
    """A complete lock, or a partial one if only the PyTorch index is unreachable."""
    resolution = resolve(profile, target, sources, reporter.attempt)
    if resolution.lock:
        return CreatedLock(resolution.lock)
    reason = _reason(resolution)
    if not any(attempt.outcome == "unreachable" for attempt in resolution.attempts):
        return CreatedLock(None, reason)
    if published := resolve_published(profile, target, sources):
        return CreatedLock(published)
    without_torch = _without_torch_build(profile)
    from_pypi = resolve(without_torch, target, sources, reporter.attempt, any_torch=True)
    if from_pypi.lock is None:
        return CreatedLock(None, f"{reason}; {_reason(from_pypi)}", unreachable=True)
    return CreatedLock(_partial_lock(profile, from_pypi.lock))


def _reason(resolution: Resolution) -> str:
    return "; ".join(f"{attempt.source}: {attempt.outcome} {attempt.reason}" for attempt in resolution.attempts)


def _without_torch_build(profile: Profile) -> Profile:
    """The profile as PyPI can resolve it: with any build of torch, which the partial lock then omits."""
    requirements, constraints = (
        tuple(msgspec.structs.replace(pin, spec=re.sub(r"\+[\w.]+$", "", pin.spec)) for pin in pins)
        for pins in (profile.requirements, profile.constraints)
    )
    configured = tuple(source for source in profile.sources if source.kind == "configured")
    return msgspec.structs.replace(profile, requirements=requirements, constraints=constraints, sources=configured)


def _partial_lock(profile: Profile, lock: Lock) -> Lock:
    """The lock without the packages that only the PyTorch index has."""
    packages = [p for p in lock.packages if p.name not in TORCH_FAMILY and not p.name.startswith(CUDA_LIBRARIES)]
    required = {Requirement(pin.spec).name for pin in profile.requirements}
    omitted = (
        {package.name for package in lock.packages if package.name in TORCH_FAMILY} if profile.cuda else {"torch"}
    )
    partial = msgspec.structs.replace(
        lock,
        profile=profile.id,
        packages=tuple(packages),
        torch_build=profile.cuda.build if profile.cuda else "cpu",
        backend=next((source.backend for source in profile.sources if source.backend), ""),
    )
    without = tuple(sorted(omitted | (required & set(TORCH_FAMILY))))
    return msgspec.structs.replace(partial, without=without)


def with_sizes(lock: Lock, old: Lock | None, sources: Sources, reporter: Reporter) -> Lock:
    """The lock with the size of each wheel, where a source or the old lock has it."""
    known = published_sizes(lock.backend, lock.python, lock.architecture)
    known |= {p.sha256: p.size for p in (*(old.packages if old else ()), *lock.packages) if p.size}
    unknown = tuple(package for package in lock.packages if not known.get(package.sha256))
    if unknown:
        reporter.phase(f"Requesting the sizes of {len(unknown)} wheels")
        known |= _request_sizes(lock, unknown, sources)
    packages = tuple(msgspec.structs.replace(p, size=known.get(p.sha256, 0)) for p in lock.packages)
    return msgspec.structs.replace(lock, packages=packages)


def _request_sizes(lock: Lock, packages: Sequence[Package], sources: Sources) -> dict[str, int]:
    """Bytes by hash. Packages of the PyTorch index are requested separately: it may be unreachable."""
    family = tuple(package for package in packages if lock.backend and package.name in TORCH_FAMILY)
    rest = tuple(package for package in packages if package not in family)
    found: dict[str, int] = {}
    for group, backend in ((rest, ""), (family, lock.backend)):
        with suppress(EnvdoctorError):  # without sizes only the required disk space is unknown
            part = msgspec.structs.replace(lock, packages=group, backend=backend)
            files = locate_available_files(part, sources) if group else []
            client = new_http_client(sources, end=time.monotonic() + SIZES_SECONDS)
            found |= {file.sha256: file.size for file in with_file_sizes(client, files) if file.size}
    return found
