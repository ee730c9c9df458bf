"""Results of the load test."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record

Outcome = Literal[
    "loaded", "missing-symbol", "missing-library", "missing-version", "aborted", "timed-out", "failed", "skipped"
]


class LoadResult(Record, frozen=True, kw_only=True):
    """The result of loading one compiled file or importing one library."""

    name: str  # the file, relative to site-packages, or "trl:GRPOTrainer"
    kind: Literal["extension", "import"]
    distribution: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    output: str = ""  # the last lines of output after a failure


class LoadTest(Record, frozen=True, kw_only=True):
    """The load test of one environment."""

    python: str
    driver_libraries: str  # which of the driver's libraries were real, stubs, or missing
    results: tuple[LoadResult, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every file and library loaded, apart from skipped files."""
        return all(result.outcome in ("loaded", "skipped") for result in self.results)
