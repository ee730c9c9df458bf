"""The states of a collective's ranks, parsed from their output, and the ranks that block or slow the others."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Finding

LINE = lazy_pattern(r"envdoctor-fleet rank (\d{1,6}) (\{.*\})")
SILENT_SECONDS = 4.0  # eight heartbeats
SLOW_FACTOR = 2.5  # of the median over all ranks: more than shared CPU cores explain

Method = Literal["ssh", "slurm", "local"]
Grade = Literal["healthy", "slow", "failing", "unknown"]


class RankState(Record, frozen=True, kw_only=True):
    """The latest state of one rank; times in seconds by this machine's monotonic clock."""

    rank: int
    step: int
    phase: str
    host: str = ""
    pid: int = 0
    seen_at: float = 0.0
    step_at: float = 0.0  # when it entered its current step
    compute_seconds: float = 0.0  # of the work without communication
    ring_speed: float = 0.0  # GB/s to the next rank
    speeds: dict[str, float] = {}
    versions: dict[str, str] = {}
    wrong: int = 0  # elements with a wrong value

    @property
    def done(self) -> bool:
        """Whether it has reported its measurements."""
        return self.phase == "done"


class Speed(Record, frozen=True):
    """Bus bandwidth of one collective at one size in GB/s, that of the slowest rank."""

    name: str
    value: float
    grade: Grade
    healthy_from: float | None = None


class RankResult(Record, frozen=True):
    """One rank in the result."""

    rank: int
    node: str
    phase: str
    compute_seconds: float
    ring_speed: float  # GB/s to the next rank
    verdict: str = ""  # dead, silent, behind, slow, missing


class CollectiveResult(Record, frozen=True, kw_only=True):
    """The result of `fleet collective`."""

    schema: int = 1
    method: Method
    nodes: tuple[str, ...]
    ranks: int
    backend: str
    interface: str
    transport: str
    seconds: float
    speeds: tuple[Speed, ...]
    rank_results: tuple[RankResult, ...]
    findings: tuple[Finding, ...]


def parse_rank(line: str, previous: RankState | None, now: float) -> RankState | None:
    """Parse one line of a rank; None for any other line.

    `envdoctor-fleet rank 3 {"step": 7, "phase": "all_reduce 64MiB", "host": "gpu07", "pid": 4711}`
    """
    if not (match := LINE.search(line)):
        return None
    try:
        fields: dict[str, Any] = msgspec.json.decode(match[2])
        step_at = now if previous is None or previous.step != fields["step"] else previous.step_at
        return msgspec.convert(fields | {"rank": int(match[1]), "seen_at": now, "step_at": step_at}, RankState)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError):
        return None


def parse_deaths(text: str) -> dict[int, str]:
    """Return how ranks ended, from torchrun's report. Only the root cause counts where it is named.

    rank      : 1 (local_rank: 1)
    exitcode  : -9 (pid: 12345)
    error_file: <N/A>
    traceback : Signal 9 (SIGKILL) received by PID 12345
    """
    deaths: dict[int, str] = {}
    root = text.partition("Root Cause")[2] or text
    for rank, code in re.findall(r"\brank\s*: (\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*: (-?\d+)", root):
        number = int(code)
        deaths.setdefault(
            int(rank), f"killed by signal {-number}" if number < 0 else f"ended with exit code {number}"
        )
    return deaths


def find_blocking(states: Mapping[int, RankState], ranks: int, now: float) -> dict[int, str]:
    """Return the ranks that block the others: those that never reported, else are silent, else are behind."""
    missing = {rank: "missing" for rank in range(ranks) if rank not in states}
    if missing:
        return missing
    silent = {
        rank: "silent" for rank, state in states.items() if not state.done and now - state.seen_at > SILENT_SECONDS
    }
    if silent and len(silent) < ranks:
        return silent
    last = max(state.step for state in states.values())
    return {rank: "behind" for rank, state in states.items() if state.step < last}


def find_slow_ranks(states: Mapping[int, RankState]) -> dict[int, float]:
    """Return the ranks whose own computation is much slower than the median, with the factor."""
    return _outliers({rank: state.compute_seconds for rank, state in states.items() if state.compute_seconds > 0})


def find_slow_links(states: Mapping[int, RankState]) -> dict[int, float]:
    """Return the ranks whose link to the next rank is much slower than the median, with the factor."""
    return _outliers({rank: 1 / state.ring_speed for rank, state in states.items() if state.ring_speed > 0})


def _outliers(seconds: Mapping[int, float]) -> dict[int, float]:
    if len(seconds) < 2:
        return {}
    # The lower median: of two ranks, the slower one is compared with the faster one.
    median = statistics.median_low(seconds.values())
    return {rank: value / median for rank, value in seconds.items() if value > SLOW_FACTOR * median}


def slowest_speeds(states: Sequence[RankState]) -> dict[str, float]:
    """Return the lowest bandwidth of each collective over all ranks."""
    names = dict.fromkeys(name for state in states for name in state.speeds)
    return {name: min(state.speeds[name] for state in states if name in state.speeds) for name in names}
