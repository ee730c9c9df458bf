"""`envdoctor profiles`: what there is to choose from, and everything that one profile says."""

from __future__ import annotations

from pathlib import Path

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Record
from envdoctor.core.results import Answer
from envdoctor.knowledge.system_packages import system_packages
from envdoctor.locking import lock_files as locks
from envdoctor.profiles import Listed, Profile, list_profiles, profile_file, read_bases, read_profile
from envdoctor.profiles.files import BUNDLED


class Entry(Record, frozen=True, kw_only=True):
    """A profile that can be named."""

    id: str
    origin: str  # "bundled", or the user's file
    extends: tuple[str, ...] = ()  # what it is made of, the nearest first
    problem: str = ""  # why it is not used
    locks: int = 0  # of how many platforms and Pythons there is a lock
    targets: int = 0  # of how many there should be one
    partial: int = 0  # of the locks, those that leave out what only the PyTorch index has
    profile: Profile | None = None  # None: it cannot be read


class Entries(Record, frozen=True):
    """The bundled and the user's profiles, the preferred first."""

    profiles: tuple[Entry, ...]


class LockShown(Record, frozen=True, kw_only=True):
    """A lock of a profile."""

    file: str
    platform: str = ""
    python: str = ""
    torch: str = ""  # "cpu" or the CUDA version
    packages: int = 0
    digest: str = ""
    made: str = ""
    without: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()  # what the profile has asked for since
    problem: str = ""  # why it cannot be read


class SystemNeed(Record, frozen=True):
    """A need of the system, with what brings it."""

    name: str
    why: str
    packages: dict[str, tuple[str, ...]]  # by package manager, for the profile's first Python


class ProfileShown(Record, frozen=True, kw_only=True):
    """A profile, and what is known of it beside its file."""

    profile: Profile
    file: str
    origin: str
    extends: tuple[str, ...]
    locks: tuple[LockShown, ...]
    missing_locks: tuple[str, ...]  # platforms and Pythons that it claims, and has no lock for
    system: tuple[SystemNeed, ...]


def list_all() -> Answer:
    """Every profile that can be named."""
    entries = tuple(_entry(listed) for listed in list_profiles())
    return Answer(Entries(entries))


def _entry(listed: Listed) -> Entry:
    profile = listed.profile
    usable = profile if not listed.problem else None
    files = locks.lock_files(listed.name) if usable else []
    return Entry(
        id=listed.name,
        origin=listed.origin,
        extends=listed.extends,
        problem=listed.problem,
        locks=len(_present(listed.name, usable)) if usable else 0,
        targets=len(_wanted(usable)) if usable else 0,
        partial=sum(map(locks.is_partial, files)),
        profile=profile,
    )


def show(name: str) -> Answer:
    """Everything that one profile says."""
    profile, file = read_profile(name), profile_file(name)
    return Answer(
        ProfileShown(
            profile=profile,
            file=str(file),
            origin=BUNDLED if locks.is_bundled(file) else str(file),
            extends=read_bases(name),
            locks=tuple(_lock(path, profile) for path in locks.lock_files(name)),
            missing_locks=tuple(
                f"{architecture}, Python {python}"
                for architecture, python in _wanted(profile)
                if (architecture, python) not in _present(name, profile)
            ),
            system=_system(profile),
        )
    )


def _wanted(profile: Profile) -> list[tuple[str, str]]:
    return [(arch, python) for arch in profile.when.architectures for python in profile.python.versions]


def _present(name: str, profile: Profile) -> list[tuple[str, str]]:
    there = {path.stem for path in locks.lock_files(name)}
    return [(arch, python) for arch, python in _wanted(profile) if f"{arch}-{python}" in there]


def _lock(path: Path, profile: Profile) -> LockShown:
    try:
        file = locks.read_lock(path)
    except BadInput as error:
        return LockShown(file=str(path), problem=error.message)
    if file is None:  # it went away between the listing and the reading
        return LockShown(file=str(path), problem="is not there any more")
    return LockShown(
        file=str(path),
        platform=file.platform,
        python=file.python,
        torch=file.torch,
        packages=len(file.packages),
        digest=file.lock.digest,
        made=file.made,
        without=file.without,
        unmet=tuple(locks.unmet(profile, file)),
    )


def _system(profile: Profile) -> tuple[SystemNeed, ...]:
    names = dict.fromkeys((*profile.system, *(profile.build.needs if profile.build else ())))
    python = profile.python.versions[0]
    rows = [system_packages()[name] for name in names]
    managers = ("apt", "dnf", "apk", "conda")
    return tuple(
        SystemNeed(row.name, row.why, {m: row.packages(m, python) for m in managers if row.packages(m, python)})
        for row in rows
    )
