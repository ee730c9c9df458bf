"""What every install did, step by step, in a file that only grows.

One JSON object a line, flushed to the disk before the step goes on, so that after a kill or a power failure the file
says how far it came:

    {"install": "20261121-153012-4711", "step": "sync", "event": "start", "at": "2026-11-21T15:30:13+00:00",
     "process": 4711, "command": ["uv", "pip", "sync"], "log": ".../install-cpu-20261121-153012.log", "offset": 812}
    {"install": "20261121-153012-4711", "step": "sync", "event": "end", "exit_code": 0, "seconds": 1.9}

Times of day are for people. Durations are measured on a clock that nobody can set.
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

from envdoctor.core.records import Record

WHOLE = "install"  # the step that stands for all of them
ROLLBACK = "rollback"  # a step that is all of its journal
LINES_BYTES = 4 << 20  # of an old journal that are read: thousands of installs


class Entry(Record, frozen=True, kw_only=True):
    """One line."""

    install: str
    step: str
    event: Literal["start", "end"]
    at: str  # ISO 8601, UTC
    process: int
    command: tuple[str, ...] = ()
    exit_code: int | None = None
    seconds: float | None = None
    log: str = ""
    offset: int | None = None  # into the log, where the step begins
    detail: str = ""


class Read(NamedTuple):
    """A journal as it was found."""

    entries: tuple[Entry, ...]
    damaged: int  # lines that are none, since the last install of which the end is told


class Journal:
    """Writes the lines of one install."""

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
        """Append one line and flush it. OSError where the disk is full or gone."""
        entry = Entry(
            install=self.install, step=step, event=event, at=datetime.now(UTC).isoformat(timespec="seconds"),
            process=os.getpid(), command=tuple(command), exit_code=exit_code, seconds=seconds,
            log=str(self.log) if offset is not None else "", offset=offset, detail=detail,
        )  # fmt: skip
        data = {name: value for name, value in msgspec.to_builtins(entry).items() if value not in ("", None, (), [])}
        line = msgspec.json.encode(data) + b"\n"
        handle = self._open()
        try:
            if _ends_in_mid_line(handle):
                line = b"\n" + line
            while line:  # a disk that fills takes what fits, and refuses the rest
                line = line[os.write(handle, line) :]
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def _open(self) -> int:
        """The file, made where there is none; a folder or a broken link in its place is moved aside."""
        flags, mode = os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666
        try:
            return os.open(self.path, flags, mode)
        except OSError as error:
            if not (error.errno in (errno.EISDIR, errno.ELOOP) or self.path.is_symlink()):
                raise
        self.path.rename(self.path.with_name(f"{self.path.name}.damaged-{self.install}"))
        return os.open(self.path, flags, mode)

    @contextmanager
    def step(self, name: str, *, command: Sequence[str] = (), detail: str = "") -> Iterator[None]:
        """Journal a step's start and its end; one that raises ends with what it raised."""
        started = time.monotonic()
        self.write(name, "start", command=command, detail=detail, offset=_size(self.log))
        try:
            yield
        except BaseException as error:
            with suppress(OSError):  # a disk that is full has ended the step, and that is to be told
                self.write(name, "end", exit_code=1, seconds=_since(started), detail=_told(error))
            raise
        with suppress(OSError):  # what was done is done; where the disk is full, the next step says so
            self.write(name, "end", exit_code=0, seconds=_since(started))


def read_journal(path: Path) -> Read:
    """The lines of a journal, however damaged it is."""
    try:
        with path.open("rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - LINES_BYTES)
            file.seek(start)
            lines = file.read(LINES_BYTES).split(b"\n")[1 if start else 0 :]
    except OSError:
        return Read((), 0)
    entries, damaged = [], 0
    for line in filter(None, lines):
        try:
            entries.append(msgspec.json.decode(line, type=Entry))
            damaged = 0 if _is_end(entries[-1]) else damaged
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            damaged += 1
    return Read(tuple(entries), damaged)


def unfinished(entries: Sequence[Entry]) -> Entry | None:
    """The last line of the last install, if that install never said how it ended."""
    last = entries[-1] if entries else None
    return last if last and not _is_end(last) else None


def _is_end(entry: Entry) -> bool:
    return entry.event == "end" and entry.step in (WHOLE, ROLLBACK)


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)


def _told(error: BaseException) -> str:
    return str(getattr(error, "message", "") or type(error).__name__)[:500]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ends_in_mid_line(handle: int) -> bool:
    """Whether the last line was cut off: what is appended must not become part of it."""
    size = os.fstat(handle).st_size
    return size > 0 and os.pread(handle, 1, size - 1) != b"\n"
