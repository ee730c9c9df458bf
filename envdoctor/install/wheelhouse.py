"""A wheelhouse: a directory with all wheels of a lock and a manifest, for an install without a network."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from envdoctor.core.command_line import command_line
from envdoctor.core.decoding import convert, read_text
from envdoctor.core.distribution import upgrade_command
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import expand_home
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import quote, shell_command
from envdoctor.download.partial_file import disk_errors, is_partial, path_in_folder, sha256_of
from envdoctor.download.sources import Sources
from envdoctor.download.wheel_archive import find_wheel_problems
from envdoctor.locking.lock import Lock
from envdoctor.locking.lock_files import parse_lock

MANIFEST = "envdoctor-wheelhouse.json"
MANIFEST_SCHEMA = 1
FORMAT = "a wheelhouse created by `envdoctor fetch`"
SOURCE_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
INSTALLABLE = (".whl", *SOURCE_ARCHIVES)  # files that an installer would use
FAULTS_SHOWN = 3


class WheelhouseFile(Record, frozen=True):
    """One file of a wheelhouse. `direct` marks a wheel of the profile's [[wheels]], which is not in the lock."""

    name: str
    sha256: str
    size: int
    direct: bool = False


class Manifest(Record, frozen=True, kw_only=True):
    """The content of a wheelhouse, and the profile and platform that it is for."""

    schema: int
    envdoctor: str
    made: str  # ISO 8601, UTC
    profile: str
    platform: str
    python: str
    digest: str  # of the lock
    lock: str  # the text of the lock file
    files: tuple[WheelhouseFile, ...]


class Wheelhouse(Record, frozen=True, kw_only=True):
    """A checked wheelhouse: its lock, package sources that use only this directory, and its direct wheels."""

    folder: str
    lock: Lock
    sources: Sources
    direct: dict[str, str]  # path by sha256
    files: int
    bytes: int


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically, with the permissions of the user's umask."""
    path = folder / MANIFEST
    temporary = folder / f".{MANIFEST}.{os.getpid()}"
    with disk_errors(path):
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def read_wheelhouse(folder: Path, profile: str) -> Wheelhouse:
    """Read the wheelhouse of a profile and check each file: manifest, size, hash and content."""
    folder = expand_home(folder).absolute()
    manifest = read_manifest(folder)
    if manifest is None:
        raise _without_manifest(folder, profile)
    if manifest.profile != profile:
        raise BadInput(
            f"{folder} holds the wheels of profile '{manifest.profile}'",
            expected=f"those of '{profile}'",
            hint=command_line("envdoctor", "install", manifest.profile, "--from", folder),
        )
    lock = _read_lock(folder, manifest)
    _check_names(folder, manifest, {package.sha256 for package in lock.packages if package.built})
    _check_files(folder, manifest.files, profile)
    link = folder.as_uri() if "," in str(folder) else str(folder)  # uv separates directories by commas
    return Wheelhouse(
        folder=str(folder),
        # Without a backend, since --torch-backend would make uv query the PyTorch index.
        lock=msgspec.structs.replace(lock, backend=""),
        sources=Sources(no_index=True, find_links=(link,), origins={"no-index": "--from", "find-links": "--from"}),
        direct={file.sha256: str(folder / file.name) for file in manifest.files if file.direct},
        files=len(manifest.files),
        bytes=sum(file.size for file in manifest.files),
    )


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a directory; None if there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    hint = "envdoctor fetch NAME --dest DIR"
    text = read_text(path, expected=FORMAT, hint=hint)
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON: {error}", expected=FORMAT, hint=hint) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(schema, int) and schema > MANIFEST_SCHEMA:
        raise BadInput(
            f"{path} has schema {schema}",
            expected=f"at most {MANIFEST_SCHEMA}, the newest schema that this envdoctor supports",
            hint=upgrade_command(),
        )
    return convert(data, Manifest, source=str(path), expected=FORMAT, hint=hint)


def _read_lock(folder: Path, manifest: Manifest) -> Lock:
    """The lock of a manifest, checked against the other fields and the listed files."""
    where = f"the lock in {folder / MANIFEST}"
    lock = parse_lock(manifest.lock, where=where)
    expected = (manifest.digest, manifest.profile, manifest.platform, manifest.python)
    found = (lock.digest, lock.profile, lock.platform, lock.python)
    if expected != found:
        raise _damaged(where, f"is {' '.join(found)}", f"{' '.join(expected)}, as in the manifest", lock.profile)
    present = {file.sha256 for file in manifest.files}
    if missing := [package for package in lock.packages if package.sha256 not in present]:
        raise _damaged(
            str(folder / MANIFEST),
            f"lists no file for {missing[0].name} {missing[0].version}",
            f"a file with sha256 {missing[0].sha256}",
            lock.profile,
        )
    return lock


def _check_names(folder: Path, manifest: Manifest, sources: set[str]) -> None:
    """Check that the manifest lists wheels and, for packages to compile, source archives, each once."""
    names = [file.name for file in manifest.files]
    for name, sha256 in ((file.name, file.sha256) for file in manifest.files):
        try:
            path_in_folder(folder, name)
        except BadInput as error:
            where = str(folder / MANIFEST)
            raise _damaged(
                where, f"names {name!r}", "plain names of wheels in its directory", manifest.profile
            ) from error
        installable = name.endswith(SOURCE_ARCHIVES if sha256 in sources else ".whl")
        if not installable or names.count(name) > 1:
            times = f"lists {name!r} {names.count(name)} times"
            raise _damaged(str(folder / MANIFEST), times, "wheels, each once", manifest.profile)
    for extra in unlisted_files(folder, names):
        raise BadInput(
            f"{extra} is not in {MANIFEST}",
            expected="no installable files other than those of the manifest",
            hint=f"move {quote(extra)} elsewhere, or "
            + command_line("envdoctor", "fetch", manifest.profile, "--dest", folder),
        )


def unlisted_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Installable files of a directory that are not among `names`. Partial downloads are ignored."""
    known = set(names)
    return sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith(INSTALLABLE) and path.name not in known and not is_partial(path.name)
    )


def _check_files(folder: Path, files: tuple[WheelhouseFile, ...], profile: str) -> None:
    """Check all files in parallel: hashing releases the GIL."""
    pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        work = [pool.submit(_check_file, folder, file, profile) for file in sorted(files, key=lambda f: -f.size)]
        for future in work:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _check_file(folder: Path, file: WheelhouseFile, profile: str) -> None:
    path = folder / file.name
    try:
        size = path.stat().st_size
        if size != file.size:
            raise _damaged(str(path), f"has {size} bytes", f"{file.size} bytes, as in the manifest", profile)
        digest = sha256_of(path)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise _damaged(str(path), reason, "the file that the manifest lists", profile) from error
    if digest != file.sha256:
        raise _damaged(str(path), f"has sha256 {digest}", f"sha256 {file.sha256}, as in the manifest", profile)
    if path.name.endswith(".whl"):  # uv checks source archives when it unpacks them
        check_archive(path)


def check_archive(path: Path) -> None:
    """Refuse a wheel with files outside its directories or missing from its RECORD."""
    if faults := list(find_wheel_problems(path)):
        more = f" and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise BadInput(
            f"{path}: {'; '.join(faults[:FAULTS_SHOWN])}{more}",
            expected="a wheel whose files stay in their directories and are listed in its RECORD",
            hint=shell_command("python -m zipfile --list {}", path),
        )


def _damaged(subject: str, observed: str, expected: str, profile: str) -> BadInput:
    return BadInput(
        f"{subject} {observed}",
        expected=expected,
        hint=shell_command("envdoctor fetch {} --dest DIR on a machine with a network, then copy DIR again", profile),
    )


def _without_manifest(folder: Path, profile: str) -> BadInput:
    try:
        wheels = len([path for path in folder.iterdir() if path.name.endswith(".whl")])
        observed = f"has {wheels} wheels and no {MANIFEST}"
    except OSError as error:
        observed = f"cannot be read: {error.strerror}"
    return BadInput(
        f"{folder} {observed}",
        expected=f"{FORMAT}; for a plain directory of wheels, set PIP_FIND_LINKS",
        hint=command_line("envdoctor", "fetch", profile, "--dest", folder),
    )
