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

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.records import Record

PART, NOTE = ".partial", ".partial.json"
PIECE = 1 << 20
NAME_BYTES = 255 - len(NOTE)  # of a file's name, as Linux has it
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Note(Record, frozen=True):
    """What a partial belongs to: a partial of anything else is thrown away."""

    sha256: str
    etag: str = ""  # a strong one (RFC 9110, 8.8.1), which tells whether the file at its source is still the same


def is_partial(name: str) -> bool:
    """Whether a file of this name is what an earlier download left."""
    return name.endswith((PART, NOTE))


def partial_size(target: Path) -> int:
    """Bytes of a target that an earlier run left."""
    partial = target.with_name(target.name + PART)
    return partial.stat().st_size if partial.is_file() else 0


def validate_target(target: Path) -> Path:
    """The target as an absolute path in its own folder; a name that leads elsewhere is refused."""
    name = target.name
    bad = not name or ".." in target.parts or name.startswith((".", "-")) or not name.isprintable()
    if bad or "\\" in name or is_partial(name) or len(name.encode()) > NAME_BYTES:
        raise BadInput(
            f"{str(target)!r} is no place to download to",
            expected=f"a folder and the plain name of a file of at most {NAME_BYTES} bytes, without ..",
            hint="envdoctor profiles",
        )
    return target.parent.absolute() / name


def path_in_folder(folder: Path, name: str) -> Path:
    """The place of a file in a folder; a name with a slash or .. is refused."""
    if "/" in name or name in ("", ".", ".."):
        raise BadInput(
            f"the file name {name!r} leads out of {folder}",
            expected="a plain name, as example-1.0-py3-none-any.whl",
            hint="envdoctor profiles",
        )
    return validate_target(folder / name)


def sha256_of(path: Path, on_bytes: Callable[[int], None] = lambda _: None) -> str:
    """The SHA-256 of a whole file; `on_bytes` gets the bytes read so far."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(PIECE):
            digest.update(data)
            done += len(data)
            on_bytes(done)
    return digest.hexdigest()


@contextmanager
def disk_errors(target: Path, size: int | None = None) -> Iterator[None]:
    """What a disk refuses, said with what is there and what is needed."""
    try:
        yield
    except OSError as error:
        raise _refused(error, target, size) from error


def _refused(error: OSError, target: Path, size: int | None) -> EnvdoctorError:
    folder = target.parent
    if error.errno in FULL:
        have = partial_size(target)
        free = os.statvfs(folder)
        more = f"{size - have} more bytes" if size is not None else "more room"
        return EnvdoctorError(
            f"{folder} takes no more ({error.strerror}): {free.f_bavail * free.f_frsize} bytes are free, "
            f"{have} of {'unknown' if size is None else size} bytes of {target.name} are there",
            expected=f"{more} for {target.name}; a quota or a limit (ulimit -f) counts, too",
            hint=f"df -h {folder}, free some room, then run the same command again: it goes on from there",
        )
    return EnvdoctorError(
        f"cannot write {target}: {error.strerror or error}",
        expected="a folder of yours that can be written to",
        hint=f"ls -ld {folder}",
    )


class PartialFile:
    """The partial of one target, open and locked, with the SHA-256 of what it holds so far."""

    def __init__(self, target: Path, sha256: str, size: int | None) -> None:
        self.target, self.sha256, self.size = target, sha256, size
        self.length = size  # else what the server says
        self.path = target.with_name(target.name + PART)
        self.note_path = target.with_name(target.name + NOTE)
        self.etag = ""
        self.have = 0
        self._digest = hashlib.sha256()
        with disk_errors(target, size):
            self._file = _open_locked(self.path)
        try:
            self._take_up()
        except BaseException:
            self.close()
            raise

    def _take_up(self) -> None:
        """Go on with what is there, if it belongs to this file and can be told from another one."""
        with disk_errors(self.target, self.length):
            there = os.fstat(self._file).st_size
            note = self._read_note()
            fits = self.size is None or there <= self.size
            if not there or note is None or note.sha256 != self.sha256 or not (self.sha256 or note.etag) or not fits:
                self.restart()
                return
            self.etag = note.etag
            while data := os.pread(self._file, PIECE, self.have):
                self._digest.update(data)
                self.have += len(data)
            os.lseek(self._file, self.have, os.SEEK_SET)

    def _read_note(self) -> Note | None:
        try:
            return msgspec.json.decode(self.note_path.read_bytes(), type=Note)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    @property
    def digest(self) -> str:
        """The SHA-256 of what is there."""
        return self._digest.hexdigest()

    def describe(self, etag: str) -> None:
        """Keep what the partial belongs to, before its first byte."""
        with disk_errors(self.target, self.length):
            if self.etag != etag or not self.note_path.exists():
                self.note_path.write_bytes(msgspec.json.encode(Note(self.sha256, etag)))
            self.etag = etag

    def add(self, data: bytes) -> None:
        """Bytes that follow."""
        with disk_errors(self.target, self.length):
            rest = memoryview(data)
            while rest:
                written = os.write(self._file, rest)
                self._digest.update(rest[:written])
                self.have += written
                rest = rest[written:]

    def restart(self) -> None:
        """Forget what is there."""
        with disk_errors(self.target, self.length):
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            self.note_path.unlink(missing_ok=True)
        self.have, self.etag, self._digest = 0, "", hashlib.sha256()

    def finish(self) -> Path:
        """Give the file its name, whole and on the disk."""
        with disk_errors(self.target, self.length):
            os.fsync(self._file)
            self.path.replace(self.target)
            self.note_path.unlink(missing_ok=True)
        return self.target

    def drop(self) -> None:
        """Take the partial away."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.note_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file; an empty partial is no partial."""
        if self._file >= 0:
            if not self.have and self.path.exists() and _is_at(self.path, self._file):
                self.drop()
            os.close(self._file)
            self._file = -1


def _open_locked(path: Path) -> int:
    """The file, open and locked by this process alone; the user's umask decides who may read it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise EnvdoctorError(
                f"another process is downloading {path.name.removesuffix(PART)} into {path.parent}",
                expected="one download of a file at a time",
                hint="wait for it to end, then run the same command again",
            ) from None
        except OSError:  # a file system that has no locks
            return file
        if _is_at(path, file):
            return file
        os.close(file)  # the last holder has just given the file its name


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False
