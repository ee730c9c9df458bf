"""`envdoctor profiles`: list the bundled profiles and the user's own."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.locking import lock_files as locks
from envdoctor.locking.targets import lock_targets
from envdoctor.profiles import ListedProfile, Profile, list_profiles


class ProfileEntry(Record, frozen=True, kw_only=True):
    """A profile that can be selected by name."""

    id: str
    origin: str  # "bundled", or the user's file
    extends: tuple[str, ...] = ()  # its base profiles, the nearest first
    problem: str = ""  # why it cannot be used
    locks: int = 0  # existing locks
    targets: int = 0  # platforms and Python versions that it supports
    partial: int = 0  # locks without the packages that only the PyTorch index has
    profile: Profile | None = None  # None: unreadable


class ProfileList(Record, frozen=True):
    """The bundled profiles and the user's own, the preferred first."""

    profiles: tuple[ProfileEntry, ...]


class ProfilesRequest(Record, frozen=True):
    """List the bundled profiles and your own, or run a subcommand.

    Example: envdoctor profiles show gh200
    """


def run(_request: ProfilesRequest) -> CommandResult:
    """List every profile that can be selected by name."""
    return CommandResult(ProfileList(tuple(_entry(listed) for listed in list_profiles())))


def _entry(listed: ListedProfile) -> ProfileEntry:
    profile = listed.profile
    usable = profile if not listed.problem else None
    files = locks.list_lock_files(listed.name) if usable else []
    targets = lock_targets(usable) if usable else ()
    expected = {locks.lock_path(listed.name, target.platform, target.pythons[0]) for target in targets}
    return ProfileEntry(
        id=listed.name,
        origin=listed.origin,
        extends=listed.extends,
        problem=listed.problem,
        locks=len(expected.intersection(files)),
        targets=len(expected),
        partial=sum(map(locks.is_partial, files)),
        profile=profile,
    )
