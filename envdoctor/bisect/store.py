"""The state file of a bisection: its trials, so that the same command continues an interrupted one."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from envdoctor.bisect.records import Trial
from envdoctor.core.directories import state_directory
from envdoctor.core.files import read_file
from envdoctor.core.record import Record
from envdoctor.verify.stored_results import write_record

SCHEMA = 1


class Stored(Record, frozen=True, kw_only=True):
    """The contents of the file."""

    schema: int = SCHEMA
    key: str  # digest of the request
    started: str  # time; releases after it do not count
    trials: tuple[Trial, ...] = ()


class Store:
    """The trials of one request. Each is written before the next begins, as a complete new file."""

    def __init__(self, request: object, driver: str, *, restart: bool = False) -> None:
        self.key = hashlib.sha256(msgspec.json.encode(request, order="deterministic")).hexdigest()
        self.path = state_directory() / "bisect" / f"{self.key[:16]}.json"
        stored = None if restart else _read(self.path, self.key)
        self.started = stored.started if stored else f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        trials = stored.trials if stored else ()
        self.trials = [trial for trial in trials if trial.driver == driver]
        self.resumed = len(self.trials)
        # Trials with another driver are repeated: it may be the cause.
        self.other_drivers = tuple(dict.fromkeys(trial.driver for trial in trials if trial.driver != driver))

    def find(self, packages: str) -> Trial | None:
        """The trial of a set of packages."""
        return next((trial for trial in self.trials if trial.packages == packages), None)

    def add(self, trial: Trial) -> None:
        """Store a trial."""
        self.trials.append(trial)
        write_record(self.path, Stored(key=self.key, started=self.started, trials=tuple(self.trials)))

    def remove(self) -> None:
        """Remove the file of a bisection that has ended."""
        self.path.unlink(missing_ok=True)


def _read(path: Path, key: str) -> Stored | None:
    """The stored state; None for another request, another version of the file, or a damaged one."""
    try:
        stored = msgspec.json.decode(read_file(path), type=Stored)
    except (OSError, msgspec.MsgspecError):
        return None
    return stored if stored.schema == SCHEMA and stored.key == key else None
