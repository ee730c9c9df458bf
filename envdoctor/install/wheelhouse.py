"""A folder with every wheel of a lock, for machines without a network, and its manifest, which is written last."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from envdoctor.core.decoding import convert, read_text
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import expanded
from envdoctor.core.records import Record
from envdoctor.download.partial_file import disk_errors, is_partial, path_in_folder, sha256_of
from envdoctor.download.sources import Sources
from envdoctor.download.wheel_archive import find_wheel_problems
from envdoctor.locking.lock_files import LockFile, parse_lock

MANIFEST = "envdoctor-wheelhouse.json"
MANIFEST_SCHEMA = 1
WHAT = "a wheelhouse as `envdoctor fetch` writes it"
SOURCES = (".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
INSTALLABLE = (".whl", *SOURCES)  # what an installer would take from a folder
FAULTS_SHOWN = 3


class WheelhouseFile(Record, frozen=True):
    """One file of a wheelhouse. `direct`: not of the lock, but one of the profile's [[wheels]]."""

    name: str
    sha256: str
    size: int
    direct: bool = False


class Manifest(Record, frozen=True, kw_only=True):
    """What a wheelhouse holds and for whom."""

    schema: int
    envdoctor: str
    made: str  # when, in UTC
    profile: str
    platform: str
    python: str
    digest: str  # of the lock
    lock: str  # its text
    files: tuple[WheelhouseFile, ...]


class Wheelhouse(Record, frozen=True, kw_only=True):
    """A wheelhouse that was checked file by file: the lock, the sources that use nothing else, the direct wheels."""

    folder: str
    lock: LockFile
    sources: Sources
    direct: dict[str, str]  # path by sha256
    files: int
    bytes: int


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest whole or not at all; the user's umask decides who may read it."""
    place = folder / MANIFEST
    temporary = folder / f".{MANIFEST}.{os.getpid()}"
    with disk_errors(place):
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)


def read_wheelhouse(folder: Path, profile: str) -> Wheelhouse:
    """A wheelhouse of a profile; every file is held against the manifest, its hash, and what a wheel may hold."""
    folder = expanded(folder).absolute()
    manifest = read_manifest(folder)
    if manifest is None:
        raise _without_manifest(folder, profile)
    if manifest.profile != profile:
        raise BadInput(
            f"{folder} holds the wheels of profile '{manifest.profile}'",
            expected=f"those of '{profile}'",
            hint=f"envdoctor install --profile {manifest.profile} --from {folder}",
        )
    lock = _lock_of(folder, manifest)
    _check_names(folder, manifest, {package.sha256 for package in lock.packages if package.built})
    _check_files(folder, manifest.files, profile)
    link = folder.as_uri() if "," in str(folder) else str(folder)  # uv's list of folders has commas in between
    return Wheelhouse(
        folder=str(folder),
        # Without its backend: where nothing is looked up, no index of PyTorch's has a say.
        lock=msgspec.structs.replace(lock, backend=""),
        sources=Sources(no_index=True, find_links=(link,), origins={"no-index": "--from", "find-links": "--from"}),
        direct={file.sha256: str(folder / file.name) for file in manifest.files if file.direct},
        files=len(manifest.files),
        bytes=sum(file.size for file in manifest.files),
    )


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where there is none."""
    place = folder / MANIFEST
    if not place.exists():
        return None
    hint = "envdoctor fetch --profile NAME --dest DIR"
    text = read_text(place, what=WHAT, hint=hint)
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{place} is not JSON: {error}", expected=WHAT, hint=hint) from error
    newer = data.get("schema") if isinstance(data, dict) else None
    if isinstance(newer, int) and newer > MANIFEST_SCHEMA:
        raise BadInput(
            f"{place} has schema {newer}",
            expected=f"at most {MANIFEST_SCHEMA}, which this envdoctor reads",
            hint="python -m pip install --upgrade envdoctor",
        )
    return convert(data, Manifest, where=str(place), what=WHAT, hint=hint)


def _lock_of(folder: Path, manifest: Manifest) -> LockFile:
    """The lock of a manifest, held against the rest of it."""
    where = f"the lock in {folder / MANIFEST}"
    lock = parse_lock(manifest.lock, where=where)
    told = (manifest.digest, manifest.profile, manifest.platform, manifest.python)
    found = (lock.lock.digest, lock.profile, lock.platform, lock.python)
    if told != found:
        raise _bad(where, f"is {' '.join(found)}", f"{' '.join(told)}, as the manifest says", lock.profile)
    present = {file.sha256 for file in manifest.files}
    if missing := [package for package in lock.packages if package.sha256 not in present]:
        raise _bad(
            str(folder / MANIFEST),
            f"lists no file for {missing[0].name} {missing[0].version}",
            f"a file with sha256 {missing[0].sha256}",
            lock.profile,
        )
    return lock


def _check_names(folder: Path, manifest: Manifest, sources: set[str]) -> None:
    """Wheels alone, and the sources that the lock says are built."""
    names = [file.name for file in manifest.files]
    for name, sha256 in ((file.name, file.sha256) for file in manifest.files):
        try:
            path_in_folder(folder, name)
        except BadInput as error:
            where = str(folder / MANIFEST)
            raise _bad(where, f"names {name!r}", "plain names of wheels in its folder", manifest.profile) from error
        installable = name.endswith(SOURCES if sha256 in sources else ".whl")
        if not installable or names.count(name) > 1:
            times = f"lists {name!r} {names.count(name)} times"
            raise _bad(str(folder / MANIFEST), times, "wheels, each once", manifest.profile)
    for extra in foreign_files(folder, names):
        raise BadInput(
            f"{extra} is not in {MANIFEST}",
            expected="nothing to install beside the files of the manifest",
            hint=f"mv {extra} elsewhere, or envdoctor fetch --profile {manifest.profile} --dest {folder}",
        )


def foreign_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Files that an installer would take from this folder, beside the named ones; parts of downloads are none."""
    known = set(names)
    return sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith(INSTALLABLE) and path.name not in known and not is_partial(path.name)
    )


def _check_files(folder: Path, files: tuple[WheelhouseFile, ...], profile: str) -> None:
    """All files at once: hashing lets other threads run."""
    pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        # The largest first, so that none is left alone at the end.
        work = [pool.submit(_check_file, folder, file, profile) for file in sorted(files, key=lambda f: -f.size)]
        for each in work:
            each.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _check_file(folder: Path, file: WheelhouseFile, profile: str) -> None:
    path = folder / file.name
    try:
        size = path.stat().st_size
        if size != file.size:
            raise _bad(str(path), f"has {size} bytes", f"{file.size} bytes, as the manifest says", profile)
        digest = sha256_of(path)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise _bad(str(path), why, "the file that the manifest lists", profile) from error
    if digest != file.sha256:
        raise _bad(str(path), f"has sha256 {digest}", f"sha256 {file.sha256}, as the manifest says", profile)
    if path.name.endswith(".whl"):  # what a source may hold is uv's to judge as it unpacks
        check_archive(path)


def check_archive(path: Path) -> None:
    """Refuse a wheel whose members climb out, hide, or are not in its RECORD."""
    if faults := list(find_wheel_problems(path)):
        more = f" and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise BadInput(
            f"{path}: {'; '.join(faults[:FAULTS_SHOWN])}{more}",
            expected="a wheel whose files stay in their folders and are listed in its RECORD",
            hint=f"python -m zipfile --list {path}",
        )


def _bad(what: str, observed: str, expected: str, profile: str) -> BadInput:
    return BadInput(
        f"{what} {observed}",
        expected=expected,
        hint=f"envdoctor fetch --profile {profile} --dest DIR, where there is a network, then copy DIR again",
    )


def _without_manifest(folder: Path, profile: str) -> BadInput:
    try:
        wheels = len([path for path in folder.iterdir() if path.name.endswith(".whl")])
        seen = f"has {wheels} wheels and no {MANIFEST}"
    except OSError as error:
        seen = f"cannot be read: {error.strerror}"
    return BadInput(
        f"{folder} {seen}",
        expected=f"{WHAT}; a plain folder of wheels is named by PIP_FIND_LINKS",
        hint=f"envdoctor fetch --profile {profile} --dest {folder}",
    )
