"""Reader of events.jsonl, the file into which the trainer writes one JSON object per event."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from envdoctor.core.files import open_file

EVENTS_FILE = "events.jsonl"
CHUNK = 1 << 20  # bytes per read: the events of a long run are tens of MiB

Event = dict[str, Any]


class EventReader:
    """Reads the new events of a run. An incomplete last line is left for the next call."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """Start at the beginning of the file or, with `from_end`, at its present end."""
        self.path = path
        self.problem = ""  # why an existing file could not be read at the last call
        self.offset = path.stat().st_size if from_end and path.exists() else 0

    def read_new(self) -> Iterator[Event]:
        """Yield the events since the last call.

        The file is opened on each call, since NFS revalidates its cache on open.
        """
        self.problem = ""
        try:
            with open_file(self.path) as file:
                if os.fstat(file.fileno()).st_size < self.offset:  # the file was replaced
                    self.offset = 0
                yield from self._read(file)
        except FileNotFoundError:
            return
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _read(self, file: BinaryIO) -> Iterator[Event]:
        incomplete = b""
        file.seek(self.offset)
        while chunk := file.read(CHUNK):
            *lines, incomplete = (incomplete + chunk).split(b"\n")
            for line in lines:
                self.offset += len(line) + 1
                event = parse_event(line)
                if event is not None:
                    yield event


def parse_event(line: bytes) -> Event | None:
    r"""Parse one line of events.jsonl; None where it is not an event.

    Sample: b'{"t": 1784567890.1, "event": "step", "step": 3, "steps": 200, "metrics": {"reward": 0.5}}'
    """
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
