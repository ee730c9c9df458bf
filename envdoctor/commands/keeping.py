"""Keeping profiles true: their locks made, checked and refreshed, and which of them fits which machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol

import msgspec
from packaging.requirements import Requirement

from envdoctor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK, BadInput, EnvdoctorError, Refused, unknown_name
from envdoctor.core.records import Machine, Record
from envdoctor.core.results import Answer, Written
from envdoctor.download.http_client import new_http_client
from envdoctor.download.sources import Sources, read_sources
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_words
from envdoctor.locking.lock_files import LockFile
from envdoctor.locking.resolve import TORCH_FAMILY, Attempt, Lock, Package, Target, resolve, target_of
from envdoctor.locking.torch_index import published_sizes, resolve_published
from envdoctor.locking.wheel_urls import SIZES_SECONDS, locate, locate_some, sized
from envdoctor.machine import recorded as machines
from envdoctor.profiles import Profile, choose, list_profiles, read_candidates, read_profile, violations

# A lock that is made without the PyTorch index leaves out what only that index has, and the CUDA libraries that only
# the CUDA build asks for.
CUDA_LIBRARIES = ("nvidia-", "cuda-")


class Reporter(Protocol):
    """What shows progress."""

    def phase(self, title: str) -> None: ...
    def attempt(self, attempt: Attempt) -> None: ...


class Locked(Record, frozen=True, kw_only=True):
    """One lock of one profile: what became of it."""

    profile: str
    platform: str
    python: str
    outcome: Literal["made", "unchanged", "changed", "partial", "coherent", "incoherent", "missing", "failed"]
    packages: int = 0
    digest: str = ""
    download: int = 0  # bytes of its wheels, 0 where the size of one is not known
    without: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # against the lock that was there
    problems: tuple[str, ...] = ()  # that the audit finds, or why there is none
    file: str = ""  # where it lies


class LockedAll(Record, frozen=True):
    """The outcome for every lock that was asked for."""

    results: tuple[Locked, ...]
    checked: bool  # only looked at, nothing written


def targets(profile: Profile) -> Iterator[Target]:
    """Every architecture and Python that a profile claims, each for the oldest glibc that it names."""
    for architecture in profile.when.architectures:
        for python in profile.python.versions:
            yield Target(architecture, profile.when.glibc, (python,))


class Named(NamedTuple):
    """A profile, and what it was named by: a name or a file, which says where its locks lie."""

    name: str
    profile: Profile


def named_profiles(names: Sequence[str]) -> list[Named]:
    """The profiles that were named; all that can be chosen by name, the bundled and the user's, if none is."""
    if names:
        return [Named(name, read_profile(name)) for name in names]
    return [Named(profile.id, profile) for profile in read_candidates()]


def lock(names: Sequence[str], reporter: Reporter, *, check: bool, upgrade: bool) -> Answer:
    """Make the locks of profiles (of all if none is named), or only look at those that are there.

    Those of a user's own `mine.toml` lie beside it, in `mine.locks`.
    """
    one = _check_one if check else _maker(read_sources(), reporter, upgrade=upgrade)
    results = tuple(
        _placed(named, one(named, target)) for named in named_profiles(names) for target in targets(named.profile)
    )
    failed = any(result.outcome == "failed" for result in results)
    bad = any(result.outcome in ("incoherent", "missing") for result in results)
    return Answer(LockedAll(results, check), EXIT_FAILED if failed else EXIT_NO if bad else EXIT_OK)


def _placed(named: Named, result: Locked) -> Locked:
    return msgspec.structs.replace(result, file=str(locks.lock_path(named.name, result.platform, result.python)))


def _maker(sources: Sources, reporter: Reporter, *, upgrade: bool) -> Callable[[Named, Target], Locked]:
    def make(named: Named, target: Target) -> Locked:
        profile, python = named.profile, target.pythons[0]
        reporter.phase(f"Locking {profile.id} for {target.platform}, Python {python}")
        path = locks.lock_path(named.name, target.platform, python)
        old = locks.read_lock(path)
        wanted = profile if upgrade or old is None else locks.held(profile, old)
        new, why = _new_lock(wanted, target, sources, reporter)
        if new is None:
            return Locked(
                profile=profile.id, platform=target.platform, python=python, outcome="failed", problems=(why,)
            )
        changes = tuple(locks.difference(old, new))
        problems = tuple(audit_words(new))
        if problems:
            return _locked(new, "incoherent", changes=changes, problems=problems)
        if old and not changes and old.without == new.without:
            new = old
        made = _with_sizes(new, old, sources, reporter)
        if made == old:
            return _locked(old, "unchanged")
        if new is old:
            changes = ("sizes added",)
        locks.write_lock(path, made)
        outcome: Literal["partial", "changed", "made"] = "partial" if made.without else "changed" if old else "made"
        return _locked(made, outcome, changes=changes if old else ())

    return make


def _new_lock(profile: Profile, target: Target, sources: Sources, reporter: Reporter) -> tuple[LockFile | None, str]:
    """A whole lock; where only the PyTorch index has torch and cannot be reached, one of everything else."""
    resolution = resolve(profile, target, sources, reporter.attempt)
    if resolution.lock:
        return locks.file_of(resolution.lock), ""
    why = "; ".join(f"{attempt.source}: {attempt.outcome} {attempt.reason}" for attempt in resolution.attempts)
    if not any(attempt.outcome == "unreachable" for attempt in resolution.attempts):
        return None, why
    if published := resolve_published(profile, target, sources):
        return locks.file_of(published), ""
    rest = _without_torch(profile)
    whole = resolve(rest, target, sources, reporter.attempt, any_torch=True).lock
    if whole is None:
        return None, why
    return _without_index(profile, whole), ""


def _without_index(profile: Profile, whole: Lock) -> LockFile:
    """A lock without what only the PyTorch index has."""
    kept = [p for p in whole.packages if p.name not in TORCH_FAMILY and not p.name.startswith(CUDA_LIBRARIES)]
    wanted = {Requirement(pin.spec).name for pin in profile.requirements}
    named = (
        {package.name for package in whole.packages if package.name in TORCH_FAMILY} if profile.cuda else {"torch"}
    )
    made = msgspec.structs.replace(
        whole,
        profile=profile.id,
        packages=tuple(kept),
        torch_build=profile.cuda.build if profile.cuda else "cpu",
        backend=next((source.backend for source in profile.sources if source.backend), ""),
    )
    return msgspec.structs.replace(locks.file_of(made), without=tuple(sorted(named | (wanted & set(TORCH_FAMILY)))))


def _without_torch(profile: Profile) -> Profile:
    """The profile as PyPI alone can resolve it: any build of torch will do, since it is left out afterwards."""
    pins, limits = (
        tuple(msgspec.structs.replace(pin, spec=re.sub(r"\+[\w.]+$", "", pin.spec)) for pin in given)
        for given in (profile.requirements, profile.constraints)
    )
    configured = tuple(source for source in profile.sources if source.kind == "configured")
    return msgspec.structs.replace(profile, requirements=pins, constraints=limits, sources=configured)


def _with_sizes(file: LockFile, old: LockFile | None, sources: Sources, reporter: Reporter) -> LockFile:
    """The lock with the size of each wheel, as far as a source tells it."""
    known = published_sizes(file.backend, file.python, file.platform.partition("-")[0])
    known |= {p.sha256: p.size for p in (*(old.packages if old else ()), *file.packages) if p.size}
    unknown = tuple(package for package in file.packages if not known.get(package.sha256))
    if unknown:
        reporter.phase(f"Asking for the sizes of {len(unknown)} wheels")
        known |= _ask_sizes(file.lock, unknown, sources)
    packages = tuple(msgspec.structs.replace(p, size=known.get(p.sha256, 0)) for p in file.packages)
    return msgspec.structs.replace(file, packages=packages)


def _ask_sizes(lock: Lock, packages: Sequence[Package], sources: Sources) -> dict[str, int]:
    """Bytes by hash. What only the PyTorch index has is asked for apart: that index may be out of reach."""
    family = tuple(package for package in packages if lock.backend and package.name in TORCH_FAMILY)
    rest = tuple(package for package in packages if package not in family)
    found: dict[str, int] = {}
    for some, backend in ((rest, ""), (family, lock.backend)):
        with suppress(EnvdoctorError):  # a lock without sizes is as good, but for the room that is asked for
            part = msgspec.structs.replace(lock, packages=some, backend=backend)
            files = locate_some(part, sources) if some else []
            client = new_http_client(sources, end=time.monotonic() + SIZES_SECONDS)
            found |= {file.sha256: file.size for file in sized(client, files) if file.size}
    return found


def _check_one(named: Named, target: Target) -> Locked:
    """A lock that is there, held against its profile and against what no metadata says."""
    profile, python = named.profile, target.pythons[0]
    found = locks.read_lock(locks.lock_path(named.name, target.platform, python))
    if found is None:
        why = (f"no lock: envdoctor lock --profile {named.name}",)
        return Locked(profile=profile.id, platform=target.platform, python=python, outcome="missing", problems=why)
    problems = (*_mistaken(found, profile, target), *locks.unmet(profile, found), *audit_words(found))
    return _locked(found, "incoherent" if problems else "partial" if found.without else "coherent", problems=problems)


def _locked(
    file: LockFile,
    outcome: Literal["made", "unchanged", "changed", "partial", "coherent", "incoherent"],
    *,
    changes: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
) -> Locked:
    return Locked(
        profile=file.profile,
        platform=file.platform,
        python=file.python,
        outcome=outcome,
        packages=len(file.packages),
        digest=file.lock.digest,
        download=file.lock.download,
        without=file.without,
        changes=changes,
        problems=problems,
    )


def _mistaken(file: LockFile, profile: Profile, target: Target) -> Iterator[str]:
    """What the lock says that it is of, where that is something else."""
    for what, told, wanted in (
        ("profile", file.profile, profile.id),
        ("platform", file.platform, target.platform),
        ("Python", file.python, target.pythons[0]),
    ):
        if told != wanted:
            yield f"it is of {what} {told}, not of {wanted}"


def export(name: str, form: str, python: str, architecture: str, output: str) -> Answer:
    """A profile's lock in a form that someone without envdoctor can use; printed, or written to `output`."""
    from pathlib import Path

    from envdoctor.core.decoding import write_file
    from envdoctor.export import FORMS, Place
    from envdoctor.export import export as run_export

    if form not in FORMS:
        raise unknown_name("form", form, list(FORMS), hint="envdoctor export --profile cpu --format requirements")
    profile = read_profile(name)
    target = _asked_target(profile, python, architecture)
    file = locks.kept_lock(name, target, target.pythons[0])
    if file is None:
        raise Refused(
            f"there is no lock of {profile.id} for {target.platform} and Python {target.pythons[0]}",
            expected="a profile that is locked for a platform and a Python that it names",
            hint=f"envdoctor lock --profile {name}",
        )
    # A lock holds no addresses: a form that wants them asks the configured sources.
    found = locate(file.lock, read_sources()) if form == "pylock" and not file.without else ()
    made = run_export(profile, file, form, tuple(Place(*each) for each in found))
    if output:
        write_file(Path(output), made.text, hint="envdoctor export --help")
        return Answer(Written(output, "; ".join(made.notes)))
    return Answer(made)


def _asked_target(profile: Profile, python: str, architecture: str) -> Target:
    """The platform and Python that were asked for, else the first that the profile names."""
    for asked, offered, option in (
        (python, profile.python.versions, "--python"),
        (architecture, profile.when.architectures, "--arch"),
    ):
        if asked and asked not in offered:
            raise BadInput(
                f"{option} {asked}",
                expected="one of " + ", ".join(offered),
                hint=f"envdoctor profiles show {profile.id}",
            )
    return Target(
        architecture or profile.when.architectures[0],
        profile.when.glibc,
        (python or profile.python.versions[0],),
    )


def check_facts(only: Sequence[str], reporter: Reporter) -> Answer:
    """The tables held against the wheels of the package index: what drifted, what is new, what cannot be derived."""
    from envdoctor.knowledge_check import check_facts as run_check

    found = run_check(only, read_sources(), reporter.phase, today=datetime.now(UTC).date())
    return Answer(found, EXIT_NO if found.has_drifted else EXIT_FAILED if found.is_incomplete else EXIT_OK)


class Cell(Record, frozen=True):
    """One profile on one machine."""

    profile: str
    machine: str
    fits: bool
    chosen: bool
    locked: Literal["locked", "partial", "not locked"]
    why: tuple[str, ...]  # what the machine lacks, or why the lock is no whole one


class Matrix(Record, frozen=True):
    """Every profile on every machine, from the locks alone."""

    cells: tuple[Cell, ...]
    unusable: tuple[str, ...] = ()  # the user's own profiles that cannot be read, and why


def matrix(names: Sequence[str]) -> Answer:
    """Which profile fits which recorded machine, and whether there is a lock for it: without a network."""
    profiles = named_profiles(names)
    unread = () if names else tuple(f"{e.name}: {e.problem}" for e in list_profiles() if e.profile is None)
    asked = machines.machine_names()
    cells = tuple(cell for name in asked for cell in _row(machines.read_recorded(name), profiles))
    bad = unread or any(cell.fits and cell.locked == "not locked" for cell in cells)
    return Answer(Matrix(cells, unread), EXIT_NO if bad else EXIT_OK)


def _row(machine: Machine, profiles: Sequence[Named]) -> Iterable[Cell]:
    choice = choose(machine, [named.profile for named in profiles])
    for named, candidate in zip(profiles, choice.candidates, strict=True):
        lacking = tuple(f"{c.name}: {c.observed}, needed {c.expected}" for c in violations(candidate))
        locked, why = _lock_for(machine, named) if candidate.accepted else ("not locked", "")
        reasons = (*(() if candidate.accepted else lacking), *((why,) if why else ()))
        chosen = choice.profile == named.profile.id
        yield Cell(named.profile.id, machine.name, candidate.accepted, chosen, locked, reasons)


def _lock_for(machine: Machine, named: Named) -> tuple[Literal["locked", "partial", "not locked"], str]:
    target = target_of(machine, named.profile)
    found = [locks.kept_lock(named.name, target, python) for python in target.pythons]
    whole = [file for file in found if file and not file.without]
    if whole:
        return "locked", ""
    partial = next((file for file in found if file), None)
    if partial:
        return "partial", f"{', '.join(partial.without)}: from the PyTorch index, which was not reached for the lock"
    why = f"no lock for {target.platform} and Python {', '.join(target.pythons)}: "
    return "not locked", why + f"envdoctor lock --profile {named.name}"


__all__ = ["Locked", "LockedAll", "Matrix", "lock", "matrix"]
