"""`envdoctor resolve`: resolve profiles for a machine without installing them, or print the matrix of locks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Annotated, Literal

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.options import GPU_OPTION, FactOption, Option, PythonVersionOption, reject_combination
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.download.sources import Sources, read_sources
from envdoctor.knowledge.gpu_catalogue import catalogue
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_lock
from envdoctor.locking.lock import Lock, Target
from envdoctor.locking.resolve import Resolution, default_target, resolution_error, resolve, target_for_machine
from envdoctor.locking.targets import NamedProfile, named_profiles
from envdoctor.machine import recorded as machines
from envdoctor.machine.select import select_machine
from envdoctor.profiles import Profile, candidate_for, choose, list_profiles, violation_texts

LockState = Literal["locked", "partial", "not locked"]
USUAL_NODE = "h100x8"  # for profiles that need several GPUs
EMPTY_LOCK = Lock("", "", "", "", "cpu", ())


class ResolveRequest(Record, frozen=True, kw_only=True):
    """Prints the packages that an install would use, with their sources.

    Example: envdoctor resolve gh200 --gpu gh200
    """

    profiles: Annotated[
        tuple[str, ...], Option("--profile", "The profiles to resolve.", "NAME|FILE", argument="PROFILE")
    ] = ()
    all_profiles: Annotated[
        bool, Option("--all", "Resolve every profile, including your own, as a dry run in CI.")
    ] = False
    machine: Annotated[
        str,
        Option("--machine", "A recorded machine; all: the matrix, offline.", "FILE|NAME|all", other=GPU_OPTION),
    ] = ""
    facts: FactOption = ()
    python: PythonVersionOption = ""


class ProfileResolution(Record, frozen=True):
    """The resolution of one profile, or the error, and whether the machine meets the profile's conditions."""

    profile: str
    machine: str
    fits: bool | None  # None: resolved for the profile's own platform
    violated: tuple[str, ...]
    resolution: Resolution | None
    digest: str
    error: str = ""
    hint: str = ""
    findings: tuple[Finding, ...] = ()  # of the rules, on the lock


class ResolveResult(Record, frozen=True):
    """The resolution of every requested profile."""

    results: tuple[ProfileResolution, ...]


class MatrixCell(Record, frozen=True):
    """One profile on one machine."""

    profile: str
    machine: str
    fits: bool
    chosen: bool
    locked: LockState
    why: tuple[str, ...]  # violated conditions, or why the lock is partial or missing


class Matrix(Record, frozen=True):
    """Every profile on every machine."""

    cells: tuple[MatrixCell, ...]
    unusable: tuple[str, ...] = ()  # the user's unreadable profiles, with the reason


def run(request: ResolveRequest, reporter: Reporter) -> CommandResult:
    """Resolve the requested profiles or all, or create the matrix of all profiles and machines.

    Named profiles, and all profiles with `machine`, are resolved for that machine, others for their own platform.
    """
    if bool(request.profiles) == request.all_profiles:
        raise BadInput(
            "a profile and --all are both given" if request.profiles else "neither a profile nor --all is given",
            expected="profiles, or --all",
            hint="envdoctor resolve --all",
        )
    if request.machine == "all":
        ignored = {"--fact": request.facts, "--python": request.python}
        reason = "the matrix covers all machines and locks"
        reject_combination("--machine all", ignored, reason=reason, hint="envdoctor resolve --all")
        return _create_matrix(request.profiles)
    machine = select_machine(request.machine, request.facts)
    profiles = [named.profile for named in named_profiles(request.profiles)]
    sources, for_machine = read_sources(), bool(request.profiles or request.machine)
    results = tuple(
        _resolve_profile(profile, machine, request.python, sources, reporter, for_machine=for_machine)
        for profile in profiles
    )
    unreachable = any(_is_unreachable(result) for result in results if result.error)
    bad = any(result.error or _has_error_finding(result) for result in results)
    return CommandResult(ResolveResult(results), EXIT_FAILED if unreachable else EXIT_NO if bad else EXIT_OK)


def _resolve_profile(
    profile: Profile, machine: Machine, python: str, sources: Sources, reporter: Reporter, *, for_machine: bool
) -> ProfileResolution:
    target = target_for_machine(machine, profile, python) if for_machine else default_target(machine, profile)
    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    preload = _start_rule_preload()
    resolution = resolve(profile, target, sources, reporter.attempt)
    preload.join()
    lock = resolution.lock
    candidate = candidate_for(machine, profile)
    error = None if lock else resolution_error(resolution, sources)
    return ProfileResolution(
        profile=profile.id,
        machine=machine.name or "this machine",
        fits=candidate.accepted if for_machine else None,
        violated=violation_texts(candidate) if for_machine else (),
        resolution=resolution,
        digest=lock.digest if lock else "",
        error=error.message if error else "",
        hint=error.hint if error else "",
        findings=audit_lock(lock, machine if for_machine else None, stack_rules_only=True) if lock else (),
    )


@cache
def _start_rule_preload() -> threading.Thread:
    """Load the rules and their tables, which takes 0.15 s, in a thread while uv waits for the index."""
    thread = threading.Thread(target=audit_lock, args=(EMPTY_LOCK, None), daemon=True)
    thread.start()
    return thread


def _has_error_finding(result: ProfileResolution) -> bool:
    return any(finding.status in ("error", "crashed") for finding in result.findings)


def _is_unreachable(result: ProfileResolution) -> bool:
    attempts = result.resolution.attempts if result.resolution else ()
    return any(attempt.outcome == "unreachable" for attempt in attempts)


def _create_matrix(names: Sequence[str]) -> CommandResult:
    """Check each profile against each recorded machine, and whether it has a lock for it, without a network.

    None of these machines is a notebook, so profiles for notebooks are only listed by name.
    """
    profiles = [named for named in named_profiles(names) if names or named.profile.notebook is None]
    unusable = () if names else tuple(f"{e.name}: {e.problem}" for e in list_profiles() if e.profile is None)
    lock_state = cache(_lock_state)  # most machines have the same target, and a lock has thousands of hashes
    cells = tuple(cell for machine in _all_machines() for cell in _matrix_row(machine, profiles, lock_state))
    bad = unusable or any(cell.fits and cell.locked == "not locked" for cell in cells)
    return CommandResult(Matrix(cells, unusable), EXIT_NO if bad else EXIT_OK)


def _all_machines() -> Iterator[Machine]:
    """The recorded machines, one with each GPU of the catalogue, and one with the GPUs of a usual node."""
    recorded = machines.machine_names()
    for name in [*recorded, *(gpu for gpu in catalogue() if gpu not in recorded), USUAL_NODE]:
        yield machines.read_recorded(name)


def _matrix_row(
    machine: Machine, profiles: Sequence[NamedProfile], lock_state: Callable[..., tuple[LockState, str]]
) -> Iterator[MatrixCell]:
    choice = choose(machine, [named.profile for named in profiles])
    for named in profiles:
        candidate = candidate_for(machine, named.profile)
        state: LockState = "not locked"
        reasons: tuple[str, ...]
        if candidate.accepted:
            target = target_for_machine(machine, named.profile)
            state, reason = lock_state(named.name, target.architecture, target.glibc, target.pythons)
            reasons = (reason,) if reason else ()
        else:
            reasons = violation_texts(candidate)
        chosen = choice.profile == named.profile.id
        yield MatrixCell(named.profile.id, machine.name, candidate.accepted, chosen, state, reasons)


def _lock_state(name: str, architecture: str, glibc: str, pythons: tuple[str, ...]) -> tuple[LockState, str]:
    target = Target(architecture, glibc, pythons)
    files = [file for python in target.pythons if (file := locks.find_lock(name, target, python))]
    if any(not file.without for file in files):
        return "locked", ""
    if files:
        omitted = ", ".join(files[0].without)
        return "partial", f"without {omitted}: the PyTorch index was not reachable when the lock was created"
    return (
        "not locked",
        f"no lock for {target.platform} and Python {', '.join(pythons)}: {command_line('envdoctor', 'lock', name)}",
    )
