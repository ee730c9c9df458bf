"""What became of each compiled file and each import."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.records import Record

Outcome = Literal[
    "loaded", "missing-symbol", "missing-library", "missing-version", "aborted", "timed-out", "failed", "left-out"
]


class Loaded(Record, frozen=True, kw_only=True):
    """What became of one file or one import."""

    name: str  # the file below its folder of packages, or "trl:GRPOTrainer"
    kind: Literal["extension", "import"]
    distribution: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    output: str = ""  # the last lines, where it did not load


class LoadTest(Record, frozen=True, kw_only=True):
    """Every file and every import of an environment."""

    python: str
    standins: str  # what stood for the driver's libraries
    results: tuple[Loaded, ...]
    seconds: float
