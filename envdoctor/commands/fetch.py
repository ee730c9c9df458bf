"""`envdoctor fetch`: a directory filled with every wheel of a profile, for a machine that has no network."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor import __version__
from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, EnvdoctorError, Refused
from envdoctor.core.options import Option, ProfileArgument, PythonVersionOption
from envdoctor.core.paths import exists, expand_home, is_folder
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
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
from envdoctor.locking.resolve import check_supported, resolution_error, resolve
from envdoctor.locking.wheel_urls import PackageFile, locate_files, with_file_size, with_file_sizes
from envdoctor.profiles import Profile, Wheel, read_profile
from envdoctor.profiles.direct_wheels import StackFacts, group_by_distribution, rejection_reason
from envdoctor.profiles.notebooks import require_environment

FETCH_SECONDS = 24 * 3600.0
MIB = 1 << 20
GONE = (403, 404, 410)  # for a direct wheel, the next candidate is used
GLIBC = lazy_pattern(r"2\.[0-9]{1,3}")


class FetchResult(Record, frozen=True, kw_only=True):
    """The result of `fetch`: the wheelhouse, its files, and the command to install from it."""

    profile: str
    platform: str
    python: str
    digest: str  # of the lock
    own_lock: bool  # the lock of the profile was used; otherwise it was resolved now
    folder: str
    files: int
    bytes: int
    kept: int  # files that were already present
    downloaded: int  # bytes of the downloaded files
    seconds: float
    direct: tuple[str, ...] = ()  # files of the profile's [[wheels]]
    left_out: tuple[str, ...] = ()  # direct wheels that are unavailable or incompatible, with the reason
    removed: tuple[str, ...] = ()  # files of an earlier lock
    command: str


class FetchRequest(Record, frozen=True, kw_only=True):
    """`envdoctor install --from DIR` then installs on a machine without network access.

    Example: envdoctor fetch cpu --dest ./wheels
    """

    profile: ProfileArgument
    dest: Annotated[str, Option("--dest", "The directory to fill.", "DIR")]
    python: PythonVersionOption = ""
    architecture: Annotated[
        str, Option("--arch", "x86_64 or aarch64; default: this machine's, if the profile supports it.", "NAME")
    ] = ""
    glibc: Annotated[
        str, Option("--glibc", "glibc of the target machine; default: the profile's oldest.", "2.NN")
    ] = ""


def run(request: FetchRequest, reporter: Reporter) -> CommandResult:
    """Download all wheels of a profile's lock for a platform, and then write the manifest."""
    begin = time.monotonic()
    name, dest = request.profile, request.dest
    profile = read_profile(name)
    require_environment(profile)
    target = _target(profile, request.python, request.architecture, request.glibc)
    folder = expand_home(dest).absolute()
    if exists(folder) and not is_folder(folder):
        raise BadInput(
            f"--dest {folder} is a file",
            expected="a new or existing directory",
            hint=shell_command("ls -ld {}", folder),
        )
    old = read_manifest(folder)
    sources = read_sources()
    lock, located, own_lock = _locked(name, profile, target, sources, reporter)
    client = new_http_client(sources, end=begin + FETCH_SECONDS)
    direct, left_out = _direct_files(profile, lock, client)
    files = [*located, *direct]
    _check_folder(folder, files, old, name)
    missing = with_file_sizes(client, _missing(folder, files))
    _check_disk_space(folder, missing)
    if missing:
        reporter.phase(f"Downloading {len(missing)} of {len(files)} files into {folder}")
        with disk_errors(folder / MANIFEST):
            folder.mkdir(parents=True, exist_ok=True)
        Transfer(client, folder, missing).run(reporter.fetching)
    for file in direct:
        check_archive(folder / file.name)
    removed = _remove_old(folder, files, old)
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
        command=shlex.join(["envdoctor", "install", name, "--from", dest]),
    )  # fmt: skip
    return CommandResult(fetched)


def _target(profile: Profile, python: str, architecture: str, glibc: str) -> Target:
    """The requested target, by default this machine's architecture, and the first Python and glibc of the profile."""
    local = os.uname().machine
    offered = profile.when.architectures
    check_supported(profile, python=python, architecture=architecture)
    if glibc and not (GLIBC.fullmatch(glibc) and _minor(glibc) >= _minor(profile.when.glibc)):
        raise BadInput(
            f"--glibc {glibc}",
            expected=f"{profile.when.glibc}, which profile '{profile.id}' needs, or a newer one",
            hint="ldd --version on the target machine",
        )
    machine = architecture or (local if local in offered else offered[0])
    return Target(machine, glibc or profile.when.glibc, (python or profile.python.versions[0],))


def _minor(glibc: str) -> int:
    return int(glibc.split(".")[1])


def _locked(
    name: str, profile: Profile, target: Target, sources: Sources, reporter: Reporter
) -> tuple[Lock, list[PackageFile], bool]:
    """The profile's own lock (True) if the sources have its files, otherwise one that is resolved now."""
    existing = locks.find_lock(name, target, target.pythons[0])
    usable = existing and not existing.without and not any(locks.unmet_requirements(profile, existing))
    complete = existing if usable else None
    if complete:
        reporter.phase(f"Locating {len(complete.packages)} packages of {profile.id}'s lock for {complete.platform}")
        for backend in dict.fromkeys((complete.backend, *(source.backend for source in profile.sources))):
            lock = msgspec.structs.replace(complete, backend=backend)
            with suppress(EnvdoctorError):  # try the next backend, then resolve, which reports all attempts
                return lock, locate_files(lock, sources), True
    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    pinned = locks.pin_to_lock(profile, complete) if complete else profile
    resolution = resolve(pinned, target, sources, reporter.attempt)
    if resolution.lock is None:
        raise resolution_error(resolution, sources)
    return resolution.lock, locate_files(resolution.lock, sources), False


def _direct_files(profile: Profile, lock: Lock, client: HttpClient) -> tuple[list[PackageFile], tuple[str, ...]]:
    """The direct wheels that are compatible with the lock, and why others are left out.

    The C++ ABI of torch is only known after its installation: a wheel for each ABI is included.
    """
    files: dict[str, PackageFile] = {}
    left_out: dict[str, None] = {}
    for name, candidates in group_by_distribution(profile.wheels):
        found = [
            file
            for abi in (True, False)
            if (
                file := _first_available(
                    candidates, _facts(lock, abi), client, left_out, optional=name in profile.fallbacks
                )
            )
        ]
        files |= {file.name: file for file in found}
        if not found and name not in profile.fallbacks:
            raise Refused(
                f"no wheel of {name} is available for {lock.platform}: {'; '.join(left_out)}",
                expected=f"a wheel for Python {lock.python} and torch for {lock.torch_build}",
                hint=f'name another wheel under [[wheels]], or a fallback: [fallbacks] {name} = "sdpa"',
            )
    return list(files.values()), tuple(reason for reason in left_out if reason.partition(": ")[0] not in files)


def _facts(lock: Lock, abi: bool) -> StackFacts:
    # The glibc is unknown here; the install checks it.
    return StackFacts(lock.python, lock.architecture, lock.version_of("torch"), lock.torch_build, "", abi)


def _first_available(
    candidates: Sequence[Wheel], facts: StackFacts, client: HttpClient, left_out: dict[str, None], *, optional: bool
) -> PackageFile | None:
    """The first compatible wheel of a distribution that is available.

    An unreachable host is an error, unless the wheel is `optional` because the profile has a fallback.
    """
    for wheel in candidates:
        reason = rejection_reason(wheel, facts)
        try:
            if not reason:
                return with_file_size(client, PackageFile(wheel.file, wheel.url, wheel.sha256))
        except RequestFailed as error:
            if error.status not in GONE and not optional:
                raise EnvdoctorError(
                    f"{wheel.file}: {error.reason}",
                    expected="its size",
                    hint="check the network and run the same command again",
                ) from error
            reason = error.reason
        left_out[f"{wheel.file}: {reason}"] = None
    return None


def _missing(folder: Path, files: Sequence[PackageFile]) -> list[PackageFile]:
    """The files that are not present, or have a wrong hash."""

    def is_present(file: PackageFile) -> bool:
        place = path_in_folder(folder, file.name)
        with disk_errors(place):
            return place.is_file() and sha256_of(place) == file.sha256

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        results = list(pool.map(is_present, files))
    return [file for file, present in zip(files, results, strict=True) if not present]


def _check_folder(folder: Path, files: Sequence[PackageFile], old: Manifest | None, name: str) -> None:
    """Refuse a directory with files that are neither of this lock nor of an earlier lock of this profile."""
    if not folder.is_dir():
        return
    own = [file.name for file in files] + [file.name for file in (old.files if old else ())]
    with disk_errors(folder / MANIFEST):
        foreign = unlisted_files(folder, own)
    if foreign:
        raise BadInput(
            f"{folder} contains {len(foreign)} files that are not part of {name}, such as {foreign[0].name}",
            expected="an empty directory, or one that `envdoctor fetch` filled for this profile",
            hint=command_line("envdoctor", "fetch", name, "--dest", f"{folder}-{Path(name).stem}"),
        )


def _check_disk_space(folder: Path, missing: Sequence[PackageFile]) -> None:
    """Refuse downloads that exceed the free disk space. Partial files count as present."""
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
            hint=shell_command("df -h {}; free some space, or use a directory on a larger disk", place),
        )


def _needed(folder: Path, file: PackageFile, place: Path) -> int:
    """Bytes that a file still needs. A local file on the same file system is hard-linked and needs none."""
    path = local_path(file.url)
    if path is not None and path.is_file() and path.stat().st_dev == place.stat().st_dev:
        return 0
    return max(0, (file.size or 0) - partial_size(folder / file.name))


def _remove_old(folder: Path, files: Sequence[PackageFile], old: Manifest | None) -> tuple[str, ...]:
    """Remove the files of an earlier lock, before a manifest without them is written."""
    names = {file.name for file in files}
    gone = [file.name for file in (old.files if old else ()) if file.name not in names]
    with disk_errors(folder / MANIFEST):
        for name in gone:
            path_in_folder(folder, name).unlink(missing_ok=True)
        for partial in (*folder.glob(f"*{PART_SUFFIX}"), *folder.glob(f"*{IDENTITY_SUFFIX}")):
            partial.unlink(missing_ok=True)  # all downloads are complete: partial files are not needed
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
