"""`envdoctor fetch`: a folder filled with every wheel of a profile, for a machine that has no network."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import BadInput, EnvdoctorError, Refused
from envdoctor.core.paths import exists, expand_home, is_folder
from envdoctor.core.records import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.download.files import local_path
from envdoctor.download.http_client import HttpClient, RequestFailed, new_http_client
from envdoctor.download.partial_file import (
    IDENTITY_SUFFIX,
    PART_SUFFIX,
    disk_errors,
    partial_size,
    path_in_folder,
    sha256_of,
)
from envdoctor.download.sources import Sources, read_sources
from envdoctor.install.transfer import Transfer
from envdoctor.install.wheelhouse import (
    MANIFEST,
    MANIFEST_SCHEMA,
    Manifest,
    WheelhouseFile,
    check_archive,
    read_manifest,
    unlisted_files,
    write_manifest,
)
from envdoctor.locking import lock_files as locks
from envdoctor.locking.lock import Lock, Target
from envdoctor.locking.resolve import resolution_error, resolve
from envdoctor.locking.wheel_urls import PackageFile, locate_files, with_file_size, with_file_sizes
from envdoctor.profiles import Profile, Wheel, read_profile
from envdoctor.profiles.direct_wheels import StackFacts, group_by_distribution, rejection_reason

FETCH_SECONDS = 24 * 3600.0
MIB = 1 << 20
GONE = (403, 404, 410)  # of a direct wheel: the next of its distribution is as good
GLIBC = re.compile(r"2\.[0-9]{1,3}")


class FetchResult(Record, frozen=True, kw_only=True):
    """A wheelhouse that was filled: for what, how much of it was there before, and how to install from it."""

    profile: str
    platform: str
    python: str
    digest: str  # of the lock
    own_lock: bool  # the profile's; else one that was resolved now
    folder: str
    files: int
    bytes: int
    kept: int  # files that were there already
    downloaded: int  # bytes of the others
    seconds: float
    direct: tuple[str, ...] = ()  # files of the profile's [[wheels]]
    left_out: tuple[str, ...] = ()  # those of them that cannot be had or do not fit, with the reason
    removed: tuple[str, ...] = ()  # files of an earlier lock
    command: str


def run(
    name: str, dest: str, reporter: Reporter, *, python: str = "", architecture: str = "", glibc: str = ""
) -> CommandResult:
    """Fill `dest` with every wheel of a profile's lock for a platform, and write its manifest last."""
    begin = time.monotonic()
    profile = read_profile(name)
    target = _target(profile, python, architecture, glibc)
    folder = expand_home(dest).absolute()
    if exists(folder) and not is_folder(folder):
        raise BadInput(f"--dest {folder} is a file", expected="a folder, or a new one", hint=f"ls -ld {folder}")
    old = read_manifest(folder)
    sources = read_sources()
    lock, located, own_lock = _locked(name, profile, target, sources, reporter)
    client = new_http_client(sources, end=begin + FETCH_SECONDS)
    direct, left_out = _direct_files(profile, lock, client)
    wanted = [*located, *direct]
    _refuse_foreign(folder, wanted, old, name)
    missing = with_file_sizes(client, _missing(folder, wanted))
    _require_room(folder, missing)
    if missing:
        reporter.phase(f"Downloading {len(missing)} of {len(wanted)} files into {folder}")
        with disk_errors(folder / MANIFEST):
            folder.mkdir(parents=True, exist_ok=True)
        Transfer(client, folder, missing).run(reporter.fetching)
    for file in direct:
        check_archive(folder / file.name)
    removed = _remove_old(folder, wanted, old)
    manifest = _manifest(profile, lock, folder, located, direct)
    write_manifest(folder, manifest)
    new = {file.name for file in missing}
    fetched = FetchResult(
        profile=profile.id, platform=lock.platform, python=lock.python, digest=manifest.digest, folder=str(folder),
        own_lock=own_lock,
        files=len(manifest.files), bytes=sum(file.size for file in manifest.files),
        kept=len(manifest.files) - len(new),
        downloaded=sum(file.size for file in manifest.files if file.name in new),
        seconds=round(time.monotonic() - begin, 2), direct=tuple(file.name for file in direct),
        left_out=left_out, removed=removed,
        command=shlex.join(["envdoctor", "install", "--profile", name, "--from", dest]),
    )  # fmt: skip
    return CommandResult(fetched)


def _target(profile: Profile, python: str, architecture: str, glibc: str) -> Target:
    """What was asked for; else this machine's architecture, the profile's first Python and its oldest glibc."""
    here = os.uname().machine
    offered = profile.when.architectures
    for asked, known, option in (
        (python, profile.python.versions, "--python"), (architecture, offered, "--arch")
    ):  # fmt: skip
        if asked and asked not in known:
            raise BadInput(
                f"{option} {asked}",
                expected="one of " + ", ".join(known),
                hint=f"envdoctor profiles show {profile.id}",
            )
    if glibc and not (GLIBC.fullmatch(glibc) and _minor(glibc) >= _minor(profile.when.glibc)):
        raise BadInput(
            f"--glibc {glibc}",
            expected=f"{profile.when.glibc}, which profile '{profile.id}' needs, or a newer one",
            hint="ldd --version, on the machine that this is for",
        )
    machine = architecture or (here if here in offered else offered[0])
    return Target(machine, glibc or profile.when.glibc, (python or profile.python.versions[0],))


def _minor(glibc: str) -> int:
    return int(glibc.split(".")[1])


def _locked(
    name: str, profile: Profile, target: Target, sources: Sources, reporter: Reporter
) -> tuple[Lock, list[PackageFile], bool]:
    """The profile's own lock (True) where the sources have its files, else one resolved now, at its versions."""
    kept = locks.find_lock(name, target, target.pythons[0])
    whole = kept if kept and not kept.without and not list(locks.unmet_requirements(profile, kept)) else None
    if whole:
        reporter.phase(f"Locating {len(whole.packages)} packages of {profile.id}'s lock for {whole.platform}")
        for backend in dict.fromkeys((whole.backend, *(source.backend for source in profile.sources))):
            lock = msgspec.structs.replace(whole, backend=backend)
            with suppress(EnvdoctorError):  # the next backend, then the resolver, which says what it tried
                return lock, locate_files(lock, sources), True
    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    held = locks.pin_to_lock(profile, whole) if whole else profile
    resolution = resolve(held, target, sources, reporter.attempt)
    if resolution.lock is None:
        raise resolution_error(resolution, sources)
    return resolution.lock, locate_files(resolution.lock, sources), False


def _direct_files(profile: Profile, lock: Lock, client: HttpClient) -> tuple[list[PackageFile], tuple[str, ...]]:
    """The direct wheels that fit the lock, and why others are left out.

    Which C++ ABI the torch of the lock has is only known once it is installed: there is a wheel for each.
    """
    files: dict[str, PackageFile] = {}
    left_out: dict[str, None] = {}
    for name, candidates in group_by_distribution(profile.wheels):
        had = [
            file
            for abi in (True, False)
            if (
                file := _first_fitting(
                    candidates, _facts(lock, abi), client, left_out, spare=name in profile.fallbacks
                )
            )
        ]
        files |= {file.name: file for file in had}
        if not had and name not in profile.fallbacks:
            raise Refused(
                f"no wheel of {name} can be had for {lock.platform}: {'; '.join(left_out)}",
                expected=f"one that fits Python {lock.python} and torch for {lock.torch_build}",
                hint=f'name another under [[wheels]], or what to do without it: [fallbacks] {name} = "sdpa"',
            )
    return list(files.values()), tuple(reason for reason in left_out if reason.partition(": ")[0] not in files)


def _facts(lock: Lock, abi: bool) -> StackFacts:
    torch = next((package.version for package in lock.packages if package.name == "torch"), "")
    architecture = lock.platform.partition("-")[0]
    return StackFacts(lock.python, architecture, torch, lock.torch_build, "", abi)  # the install asks for the glibc


def _first_fitting(
    candidates: Sequence[Wheel], facts: StackFacts, client: HttpClient, left_out: dict[str, None], *, spare: bool
) -> PackageFile | None:
    """The first wheel of a distribution that fits and is where it should be.

    A host that cannot be reached ends the fetch, but for what the stack can do without (`spare`).
    """
    for wheel in candidates:
        why = rejection_reason(wheel, facts)
        try:
            if not why:
                return with_file_size(client, PackageFile(wheel.file, wheel.url, wheel.sha256))
        except RequestFailed as resolution_error:
            if resolution_error.status not in GONE and not spare:
                raise EnvdoctorError(
                    f"{wheel.file}: {resolution_error.reason}",
                    expected="its size",
                    hint="check the network and run the same command again",
                ) from resolution_error
            why = resolution_error.reason
        left_out[f"{wheel.file}: {why}"] = None
    return None


def _missing(folder: Path, files: Sequence[PackageFile]) -> list[PackageFile]:
    """The files that are not there, or not with the right hash."""

    def is_there(file: PackageFile) -> bool:
        place = path_in_folder(folder, file.name)
        with disk_errors(place):
            return place.is_file() and sha256_of(place) == file.sha256

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        there = list(pool.map(is_there, files))
    return [file for file, is_kept in zip(files, there, strict=True) if not is_kept]


def _refuse_foreign(folder: Path, wanted: Sequence[PackageFile], old: Manifest | None, name: str) -> None:
    """A folder that holds other wheels is somebody else's; those of an earlier lock of this profile are ours."""
    if not folder.is_dir():
        return
    ours = [file.name for file in wanted] + [file.name for file in (old.files if old else ())]
    with disk_errors(folder / MANIFEST):
        foreign = unlisted_files(folder, ours)
    if foreign:
        raise BadInput(
            f"{folder} holds {len(foreign)} files that are not of {name}, as {foreign[0].name}",
            expected="an empty folder, or one that `envdoctor fetch` filled for this profile",
            hint=f"envdoctor fetch --profile {name} --dest {folder}-{Path(name).stem}",
        )


def _require_room(folder: Path, missing: Sequence[PackageFile]) -> None:
    """Refuse before anything is written what the disk cannot hold; what is there of a file counts."""
    place = next(place for place in (folder, *folder.parents) if place.exists())
    with disk_errors(folder / MANIFEST):
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        free = shutil.disk_usage(place).free
    needed = sum(_needed(folder, file, place) for file in missing)
    if needed > free:
        raise BadInput(
            f"{free / MIB:.0f} MiB are free where {folder} would be",
            expected=f"at least {needed / MIB:.0f} MiB for {len(missing)} files",
            hint=f"df -h {place}; free some room, or name a folder on a larger disk",
        )


def _needed(folder: Path, file: PackageFile, place: Path) -> int:
    """Bytes that a file still needs: none where it gets a second name on the same file system."""
    path = local_path(file.url)
    if path is not None and path.is_file() and path.stat().st_dev == place.stat().st_dev:
        return 0
    return max(0, (file.size or 0) - partial_size(folder / file.name))


def _remove_old(folder: Path, wanted: Sequence[PackageFile], old: Manifest | None) -> tuple[str, ...]:
    """Take away the files of an earlier lock, before the manifest that does not list them is written."""
    names = {file.name for file in wanted}
    gone = [file.name for file in (old.files if old else ()) if file.name not in names]
    with disk_errors(folder / MANIFEST):
        for name in gone:
            path_in_folder(folder, name).unlink(missing_ok=True)
        for left in (*folder.glob(f"*{PART_SUFFIX}"), *folder.glob(f"*{IDENTITY_SUFFIX}")):
            left.unlink(missing_ok=True)  # everything is there: no part is of any use
    return tuple(gone)


def _manifest(
    profile: Profile, lock: Lock, folder: Path, located: Iterable[PackageFile], direct: Iterable[PackageFile]
) -> Manifest:
    files = {file.name: (file, False) for file in located} | {file.name: (file, True) for file in direct}
    return Manifest(
        schema=MANIFEST_SCHEMA,
        envdoctor=__version__,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        profile=profile.id,
        platform=lock.platform,
        python=lock.python,
        digest=lock.digest,
        lock=locks.format_lock(lock),
        files=tuple(
            WheelhouseFile(file.name, file.sha256, (folder / file.name).stat().st_size, is_direct)
            for file, is_direct in sorted(files.values())
        ),
    )
