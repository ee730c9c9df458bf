"""Incomplete downloads: NAME.part, and NAME.part.json, which identifies the file that the part belongs to."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.record import Record

PART_SUFFIX, IDENTITY_SUFFIX = ".part", ".part.json"
CHUNK = 1 << 20
MAX_NAME_BYTES = 255 - len(IDENTITY_SUFFIX)  # Linux limits file names to 255 bytes
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Identity(Record, frozen=True):
    """The file that a part belongs to. A part of another file is discarded."""

    sha256: str
    etag: str = ""  # a strong ETag (RFC 9110, 8.8.1), which changes with the file


# Created here: of a first decoder that several threads create at once, msgspec can leave one incomplete and crash.
_IDENTITIES = msgspec.json.Decoder(Identity)


def is_partial(name: str) -> bool:
    """Whether a file name is that of an incomplete download."""
    return name.endswith((PART_SUFFIX, IDENTITY_SUFFIX))


def partial_size(target: Path) -> int:
    """Return the bytes of a target that an earlier download left."""
    part = target.with_name(target.name + PART_SUFFIX)
    return part.stat().st_size if part.is_file() else 0


def validate_target(target: Path) -> Path:
    """Return the target as an absolute path; raises BadInput for a name that is not a plain file name."""
    name = target.name
    invalid = not name or ".." in target.parts or name.startswith((".", "-")) or not name.isprintable()
    if invalid or "\\" in name or is_partial(name) or len(name.encode()) > MAX_NAME_BYTES:
        raise BadInput(
            f"{str(target)!r} is not a valid download target",
            expected=f"a directory and a plain file name of at most {MAX_NAME_BYTES} bytes, without ..",
            hint="envdoctor profiles",
        )
    return target.parent.absolute() / name


def path_in_folder(folder: Path, name: str) -> Path:
    """Return the path of a file in a directory; raises BadInput for a name with a slash or `..`."""
    if "/" in name or name in ("", ".", ".."):
        raise BadInput(
            f"the file name {name!r} leads out of {folder}",
            expected="a plain name such as example-1.0-py3-none-any.whl",
            hint="envdoctor profiles",
        )
    return validate_target(folder / name)


def sha256_of(path: Path, on_bytes: Callable[[int], None] = lambda _: None) -> str:
    """Return the SHA-256 of a file; `on_bytes` receives the number of bytes read so far."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(CHUNK):
            digest.update(data)
            done += len(data)
            on_bytes(done)
    return digest.hexdigest()


@contextmanager
def disk_errors(target: Path, size: int | None = None) -> Iterator[None]:
    """Turn an OSError into an error with the free and the required space."""
    try:
        yield
    except OSError as error:
        raise _disk_error(error, target, size) from error


def _disk_error(error: OSError, target: Path, size: int | None) -> EnvdoctorError:
    folder = target.parent
    if error.errno in DISK_FULL:
        present = partial_size(target)
        stats = os.statvfs(folder)
        required = f"{size - present} more bytes" if size is not None else "more space"
        return EnvdoctorError(
            f"{folder} is full ({error.strerror}): {stats.f_bavail * stats.f_frsize} bytes are free, "
            f"{present} of {'unknown' if size is None else size} bytes of {target.name} are present",
            expected=f"{required} for {target.name}, also in quotas and limits (ulimit -f)",
            hint=f"{command_line('df', '-h', folder)}, free some space, and run the command again to resume",
        )
    return EnvdoctorError(
        f"cannot write {target}: {error.strerror or error}",
        expected="a writable directory",
        hint=command_line("ls", "-ld", folder),
    )


class PartialFile:
    """The part of one target, open and locked, with the SHA-256 of its content so far."""

    def __init__(self, target: Path, sha256: str, size: int | None) -> None:
        self.target, self.sha256, self.size = target, sha256, size
        self.length = size  # of the whole file; where unknown, replaced by the server's value
        self.path = target.with_name(target.name + PART_SUFFIX)
        self.identity_path = target.with_name(target.name + IDENTITY_SUFFIX)
        self.etag = ""
        self.present = 0  # bytes
        self._digest = hashlib.sha256()
        with disk_errors(target, size):
            self._file = _open_locked(self.path)
        try:
            self._resume()
        except BaseException:
            self.close()
            raise

    def _resume(self) -> None:
        """Keep the content if it belongs to this file and a change of the file would be noticed."""
        with disk_errors(self.target, self.length):
            size = os.fstat(self._file).st_size
            identity = self._read_identity()
            if (
                not size
                or (self.size is not None and size > self.size)
                or identity is None
                or identity.sha256 != self.sha256
                or not (self.sha256 or identity.etag)
            ):
                self.restart()
                return
            self.etag = identity.etag
            while data := os.pread(self._file, CHUNK, self.present):
                self._digest.update(data)
                self.present += len(data)
            os.lseek(self._file, self.present, os.SEEK_SET)

    def _read_identity(self) -> Identity | None:
        try:
            return _IDENTITIES.decode(self.identity_path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    @property
    def digest(self) -> str:
        """The SHA-256 of the content so far."""
        return self._digest.hexdigest()

    @property
    def kept(self) -> int:
        """The bytes in the file. They exceed `present` where Ctrl-C arrived right after a write."""
        return os.fstat(self._file).st_size

    def write_identity(self, etag: str) -> None:
        """Record the file that the part belongs to, before its first byte is written."""
        with disk_errors(self.target, self.length):
            if self.etag != etag or not self.identity_path.exists():
                self.identity_path.write_bytes(msgspec.json.encode(Identity(self.sha256, etag)))
            self.etag = etag

    def append(self, data: bytes) -> None:
        """Append bytes."""
        with disk_errors(self.target, self.length):
            rest = memoryview(data)
            while rest:
                written = os.write(self._file, rest)
                self._digest.update(rest[:written])
                self.present += written
                rest = rest[written:]

    def restart(self) -> None:
        """Discard the content."""
        with disk_errors(self.target, self.length):
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            self.identity_path.unlink(missing_ok=True)
        self.present, self.etag, self._digest = 0, "", hashlib.sha256()

    def finish(self) -> Path:
        """Write the file to disk and rename it to its target."""
        with disk_errors(self.target, self.length):
            os.fsync(self._file)
            self.path.replace(self.target)
            self.identity_path.unlink(missing_ok=True)
        return self.target

    def delete(self) -> None:
        """Delete the part."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.identity_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, and delete it if it is empty."""
        if self._file >= 0:
            if not self.kept and self.path.exists() and _is_at(self.path, self._file):
                self.delete()
            os.close(self._file)
            self._file = -1


def _open_locked(path: Path) -> int:
    """Open a file with an exclusive lock; the user's umask decides on its permissions."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise EnvdoctorError(
                f"another process is downloading {path.name.removesuffix(PART_SUFFIX)} into {path.parent}",
                expected="one download of a file at a time",
                hint="wait for it to end, then run the same command again",
            ) from None
        except OSError:  # a file system without locks
            return file
        if _is_at(path, file):
            return file
        os.close(file)  # the previous owner of the lock has just renamed the file


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False
