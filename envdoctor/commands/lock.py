"""`envdoctor lock`: create, update or check the lock files of profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import exit_code
from envdoctor.core.options import Option, reject_combination
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.download.sources import Sources, read_sources
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_messages
from envdoctor.locking.create_lock import create_lock, with_sizes
from envdoctor.locking.lock import Lock, Target, lock_changes
from envdoctor.locking.targets import NamedProfile, lock_targets, named_profiles
from envdoctor.profiles import Profile

Outcome = Literal[
    "made", "unchanged", "changed", "partial", "coherent", "incoherent", "missing", "failed", "unreachable"
]


class LockOutcome(Record, frozen=True, kw_only=True):
    """The outcome for one lock of one profile."""

    profile: str
    platform: str
    python: str
    outcome: Outcome
    packages: int = 0
    digest: str = ""
    download: int = 0  # bytes of its wheels; 0 if the size of one is unknown
    without: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # compared with the previous lock
    problems: tuple[str, ...] = ()  # found by the audit, or the reason for a missing lock
    file: str = ""


class LockResult(Record, frozen=True):
    """The outcome for every lock."""

    results: tuple[LockOutcome, ...]
    checked: bool  # the locks were only checked, nothing was written


class LockRequest(Record, frozen=True, kw_only=True):
    """A profile has one lock with hashes for each platform and Python version. Changes are printed.

    The locks of your own mine.toml are in mine.locks next to it.

    Example: envdoctor lock --check
    """

    profiles: Annotated[
        tuple[str, ...],
        Option("--profile", "The profiles to lock; default: all.", "NAME|FILE", argument="PROFILE"),
    ] = ()
    check: Annotated[
        bool,
        Option("--check", "Check existing locks against profiles and rules; write nothing."),
    ] = False
    upgrade: Annotated[
        bool,
        Option("--upgrade", "Allow new versions of packages that the profile does not pin."),
    ] = False


def run(request: LockRequest, reporter: Reporter) -> CommandResult:
    """Create or check the locks of the named profiles, by default of all."""
    if request.check:
        ignored = {"--upgrade": request.upgrade}
        reject_combination("--check", ignored, reason="it writes no lock", hint="envdoctor lock --check")
    sources = None if request.check else read_sources()
    outcomes = []
    for named in named_profiles(request.profiles):
        for target in lock_targets(named.profile):
            if sources is None:
                outcome = _check(named, target)
            else:
                outcome = _update(named, target, sources, reporter, upgrade=request.upgrade)
            file = locks.lock_path(named.name, outcome.platform, outcome.python)
            outcomes.append(msgspec.structs.replace(outcome, file=str(file)))
    found = {outcome.outcome for outcome in outcomes}
    code = exit_code(failed=bool(found & {"failed", "incoherent", "missing"}), undecided="unreachable" in found)
    return CommandResult(LockResult(tuple(outcomes), request.check), code)


def _update(
    named: NamedProfile, target: Target, sources: Sources, reporter: Reporter, *, upgrade: bool
) -> LockOutcome:
    """Resolve the profile and write its lock if it changed; versions of the old lock are kept without `upgrade`."""
    profile, python = named.profile, target.pythons[0]
    reporter.phase(f"Locking {profile.id} for {target.platform}, Python {python}")
    path = locks.lock_path(named.name, target.platform, python)
    old = locks.read_lock(path)
    pinned = profile if upgrade or old is None else locks.pin_to_lock(profile, old)
    created = create_lock(pinned, target, sources, reporter)
    new = created.lock
    if new is None:
        outcome: Outcome = "unreachable" if created.unreachable else "failed"
        return LockOutcome(
            profile=profile.id, platform=target.platform, python=python, outcome=outcome, problems=(created.reason,)
        )
    changes = tuple(lock_changes(old, new))
    problems = tuple(audit_messages(new))
    if problems:
        return _outcome(new, "incoherent", changes=changes, problems=problems)
    if old and not changes and old.without == new.without:
        new = old
    made = with_sizes(new, old, sources, reporter)
    if made == old:
        return _outcome(old, "unchanged")
    if new is old:
        changes = ("sizes added",)
    locks.write_lock(path, made)
    outcome = "partial" if made.without else "changed" if old else "made"
    return _outcome(made, outcome, changes=changes if old else ())


def _check(named: NamedProfile, target: Target) -> LockOutcome:
    """Check an existing lock against its profile and the rules."""
    profile, python = named.profile, target.pythons[0]
    file = locks.read_lock(locks.lock_path(named.name, target.platform, python))
    if file is None:
        problems: tuple[str, ...] = (f"no lock: {command_line('envdoctor', 'lock', named.name)}",)
        return LockOutcome(
            profile=profile.id, platform=target.platform, python=python, outcome="missing", problems=problems
        )
    problems = (
        *_header_mismatches(file, profile, target),
        *locks.unmet_requirements(profile, file),
        *audit_messages(file),
    )
    return _outcome(file, "incoherent" if problems else "partial" if file.without else "coherent", problems=problems)


def _outcome(
    file: Lock, outcome: Outcome, *, changes: tuple[str, ...] = (), problems: tuple[str, ...] = ()
) -> LockOutcome:
    return LockOutcome(
        profile=file.profile,
        platform=file.platform,
        python=file.python,
        outcome=outcome,
        packages=len(file.packages),
        digest=file.digest,
        download=file.download,
        without=file.without,
        changes=changes,
        problems=problems,
    )


def _header_mismatches(file: Lock, profile: Profile, target: Target) -> Iterator[str]:
    """Values in the header of a lock that differ from the expected ones."""
    for name, observed, expected in (
        ("profile", file.profile, profile.id),
        ("platform", file.platform, target.platform),
        ("Python", file.python, target.pythons[0]),
    ):
        if observed != expected:
            yield f"it is for {name} {observed}, not for {expected}"
