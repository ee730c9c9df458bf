"""`envdoctor profiles show`: show a profile with its locks and system packages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from envdoctor.core.errors import BadInput
from envdoctor.core.options import Argument
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.knowledge.system_packages import system_packages
from envdoctor.locking import lock_files as locks
from envdoctor.locking.targets import lock_targets
from envdoctor.profiles import Profile, profile_file, read_bases, read_profile
from envdoctor.profiles.files import BUNDLED

PACKAGE_MANAGERS = ("apt", "dnf", "apk", "conda")


class LockSummary(Record, frozen=True, kw_only=True):
    """One lock of a profile."""

    file: str
    platform: str = ""
    python: str = ""
    torch: str = ""  # "cpu" or the CUDA version
    packages: int = 0
    digest: str = ""
    made: str = ""
    without: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()  # requirements that were added to the profile after the lock
    problem: str = ""  # why it is unreadable


class SystemRequirement(Record, frozen=True):
    """A requirement on the operating system, with the packages that provide it."""

    name: str
    why: str
    packages: dict[str, tuple[str, ...]]  # by package manager, for the profile's first Python version


class ProfileDetails(Record, frozen=True, kw_only=True):
    """A profile with its file, its locks and its system requirements."""

    profile: Profile
    file: str
    origin: str
    extends: tuple[str, ...]
    locks: tuple[LockSummary, ...]
    missing_locks: tuple[str, ...]  # supported platforms and Python versions without a lock
    system: tuple[SystemRequirement, ...]


class ProfilesShowRequest(Record, frozen=True):
    """Prints its conditions, its pins with their reasons, and its locks.

    Example: envdoctor profiles show cpu
    """

    name: Annotated[str, Argument("A bundled profile, or your own TOML file.", "NAME|FILE")]


def run(request: ProfilesShowRequest) -> CommandResult:
    """Show the profile with this name or file."""
    name = request.name
    profile, file = read_profile(name), profile_file(name)
    lock_paths = locks.list_lock_files(name)
    return CommandResult(
        ProfileDetails(
            profile=profile,
            file=str(file),
            origin=BUNDLED if locks.is_bundled_profile(file) else str(file),
            extends=read_bases(name),
            locks=tuple(_summarise(path, profile) for path in lock_paths),
            missing_locks=tuple(
                f"{target.architecture}, Python {target.pythons[0]}"
                for target in lock_targets(profile)
                if locks.lock_path(name, target.platform, target.pythons[0]) not in lock_paths
            ),
            system=_system_requirements(profile),
        )
    )


def _summarise(path: Path, profile: Profile) -> LockSummary:
    try:
        file = locks.read_lock(path)
    except BadInput as error:
        return LockSummary(file=str(path), problem=error.message)
    if file is None:  # removed after the directory was listed
        return LockSummary(file=str(path), problem="no longer exists")
    return LockSummary(
        file=str(path),
        platform=file.platform,
        python=file.python,
        torch=file.torch_build,
        packages=len(file.packages),
        digest=file.digest,
        made=file.made,
        without=file.without,
        unmet=tuple(locks.unmet_requirements(profile, file)),
    )


def _system_requirements(profile: Profile) -> tuple[SystemRequirement, ...]:
    names = dict.fromkeys((*profile.system, *(profile.build.needs if profile.build else ())))
    python = profile.python.versions[0]
    rows = (system_packages()[name] for name in names)
    return tuple(
        SystemRequirement(
            row.name,
            row.why,
            {manager: packages for manager in PACKAGE_MANAGERS if (packages := row.packages(manager, python))},
        )
        for row in rows
    )
