"""The journal of all installs of an environment: one line for each start and end of a step.

Each line is a JSON object and is flushed to disk before the step continues, so that the journal is correct after a
kill or a power failure:

    {"install": "20261121-153012-4711", "step": "sync", "event": "start", "at": "2026-11-21T15:30:13+00:00",
     "process": 4711, "command": ["uv", "pip", "sync"], "log": ".../install-cpu-20261121-153012.log", "offset": 812}
    {"install": "20261121-153012-4711", "step": "sync", "event": "end", "exit_code": 0, "seconds": 1.9}

Durations come from the monotonic clock.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from envdoctor.core.files import open_file
from envdoctor.core.record import Record

INSTALL = "install"  # the step that contains all other steps of an install
ROLLBACK = "rollback"  # the only step of a rollback
READ_BYTES = 4 << 20  # read from the end of a journal: thousands of installs


class JournalEntry(Record, frozen=True, kw_only=True):
    """One line of the journal."""

    install: str
    step: str
    event: Literal["start", "end"]
    at: str  # ISO 8601, UTC
    process: int
    command: tuple[str, ...] = ()
    exit_code: int | None = None
    seconds: float | None = None
    log: str = ""
    offset: int | None = None  # position in the log at which the step begins
    detail: str = ""


class JournalContents(NamedTuple):
    """The entries of a journal file."""

    entries: tuple[JournalEntry, ...]
    damaged: int  # unreadable lines after the last recorded end of an install


class Journal:
    """Writes the entries of one install."""

    def __init__(self, path: Path, install: str, log: Path) -> None:
        self.path = path
        self.install = install
        self.log = log

    def write(
        self,
        step: str,
        event: Literal["start", "end"],
        *,
        command: Sequence[str] = (),
        exit_code: int | None = None,
        seconds: float | None = None,
        offset: int | None = None,
        detail: str = "",
    ) -> None:
        """Append one entry and flush it to disk. OSError if the disk is full or unavailable."""
        entry = JournalEntry(
            install=self.install, step=step, event=event, at=datetime.now(UTC).isoformat(timespec="seconds"),
            process=os.getpid(), command=tuple(command), exit_code=exit_code, seconds=seconds,
            log=str(self.log) if offset is not None else "", offset=offset, detail=detail,
        )  # fmt: skip
        data = {name: value for name, value in msgspec.to_builtins(entry).items() if value not in ("", None, (), [])}
        line = msgspec.json.encode(data) + b"\n"
        handle = self._open()
        try:
            if _ends_with_partial_line(handle):
                line = b"\n" + line
            while line:  # a disk that is almost full writes only a part
                line = line[os.write(handle, line) :]
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def _open(self) -> int:
        """Open or create the file. A directory or a broken link at its path is renamed first."""
        flags, mode = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666
        try:
            return os.open(self.path, flags, mode)
        except OSError as error:
            if not (error.errno in (errno.EISDIR, errno.ELOOP) or self.path.is_symlink()):
                raise
        self.path.rename(self.path.with_name(f"{self.path.name}.damaged-{self.install}"))
        return os.open(self.path, flags, mode)

    @contextmanager
    def step(self, name: str, *, command: Sequence[str] = (), detail: str = "") -> Iterator[None]:
        """Write the start and the end of a step. The end of a failed step contains the error."""
        started = time.monotonic()
        self.write(name, "start", command=command, detail=detail, offset=_size(self.log))
        try:
            yield
        except BaseException as error:
            with suppress(OSError):  # a full disk must not hide the original error
                detail = str(getattr(error, "message", "") or type(error).__name__)[:500]
                self.write(name, "end", exit_code=1, seconds=_since(started), detail=detail)
            raise
        with suppress(OSError):  # the step succeeded; if the disk is full, the next step fails
            self.write(name, "end", exit_code=0, seconds=_since(started))


def read_journal(path: Path) -> JournalContents:
    """The readable entries of a journal, which may be damaged or missing."""
    try:
        with open_file(path) as file:
            start = max(0, os.fstat(file.fileno()).st_size - READ_BYTES)
            file.seek(start)
            lines = file.read(READ_BYTES).split(b"\n")[1 if start else 0 :]
    except OSError:
        return JournalContents((), 0)
    entries, damaged = [], 0
    for line in filter(None, lines):
        try:
            entries.append(msgspec.json.decode(line, type=JournalEntry))
            damaged = 0 if _is_end(entries[-1]) else damaged
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            damaged += 1
    return JournalContents(tuple(entries), damaged)


def unfinished_install(entries: Sequence[JournalEntry]) -> JournalEntry | None:
    """The last entry, if the last install has no end in the journal."""
    last = entries[-1] if entries else None
    return last if last and not _is_end(last) else None


def _is_end(entry: JournalEntry) -> bool:
    return entry.event == "end" and entry.step in (INSTALL, ROLLBACK)


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ends_with_partial_line(handle: int) -> bool:
    """Whether the last line is incomplete: an appended entry must not become a part of it."""
    size = os.fstat(handle).st_size
    return size > 0 and os.pread(handle, 1, size - 1) != b"\n"
