"""Ranks of a collective as they tell where they stand, and who of them holds the others up. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from envdoctor.core.records import Finding, Record

LINE = re.compile(r"envdoctor-fleet rank (\d{1,6}) (\{.*\})")
SILENT_SECONDS = 4.0  # eight beats
SLOW_FACTOR = 2.5  # of the median of all ranks: beyond what cores shared with others explain

Grade = Literal["healthy", "slow", "failing", "unknown"]


class RankState(Record, frozen=True, kw_only=True):
    """Where one rank stands, as last heard; times are this machine's, in seconds."""

    rank: int
    step: int
    phase: str
    host: str = ""
    pid: int = 0
    heard: float = 0.0
    moved: float = 0.0  # when it last came to another step
    own: float = 0.0  # seconds of work that waits for nobody
    ring: float = 0.0  # GB/s to the next rank
    speeds: dict[str, float] = {}
    versions: dict[str, str] = {}
    wrong: int = 0

    @property
    def done(self) -> bool:
        """Whether it has told what it measured."""
        return self.phase == "done"


class Speed(Record, frozen=True):
    """Bus bandwidth of one collective at one size, GB/s: the slowest rank's."""

    name: str
    value: float
    grade: Grade
    healthy_from: float | None = None


class RankShown(Record, frozen=True):
    """One rank in the result."""

    rank: int
    node: str
    phase: str
    own: float
    ring: float
    verdict: str = ""  # dead, silent, behind, slow, missing


class Collective(Record, frozen=True, kw_only=True):
    """What the collective check of some nodes found."""

    schema: int = 1
    how: Literal["ssh", "slurm", "local"]
    nodes: tuple[str, ...]
    ranks: int
    backend: str
    interface: str
    transport: str
    seconds: float
    speeds: tuple[Speed, ...]
    shown: tuple[RankShown, ...]
    findings: tuple[Finding, ...]


def parse_rank(line: str, before: RankState | None, now: float) -> RankState | None:
    """One line of a rank; None for any other line.

    `envdoctor-fleet rank 3 {"step": 7, "phase": "all_reduce 64MiB", "host": "gpu07", "pid": 4711}`
    """
    if not (found := LINE.search(line)):
        return None
    try:
        told: dict[str, Any] = msgspec.json.decode(found[2])
        moved = now if before is None or before.step != told["step"] else before.moved
        return msgspec.convert(told | {"rank": int(found[1]), "heard": now, "moved": moved}, RankState)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError):
        return None


def parse_deaths(text: str) -> dict[int, str]:
    """How ranks ended, of torchrun's report: the root cause first.

    rank      : 1 (local_rank: 1)
    exitcode  : -9 (pid: 12345)
    error_file: <N/A>
    traceback : Signal 9 (SIGKILL) received by PID 12345
    """
    found: dict[int, str] = {}
    root = text.partition("Root Cause")[2] or text
    for rank, code in re.findall(r"\brank\s*: (\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*: (-?\d+)", root):
        number = int(code)
        found.setdefault(int(rank), f"killed by signal {-number}" if number < 0 else f"ended with exit code {number}")
    return found


def name_stuck(states: Mapping[int, RankState], ranks: int, now: float) -> dict[int, str]:
    """Who holds the others up, and how: never came, fell silent, or has not come to where the others wait."""
    missing = {rank: "missing" for rank in range(ranks) if rank not in states}
    if missing:
        return missing
    silent = {
        rank: "silent" for rank, state in states.items() if not state.done and now - state.heard > SILENT_SECONDS
    }
    if silent and len(silent) < ranks:
        return silent
    last = max(state.step for state in states.values())
    return {rank: "behind" for rank, state in states.items() if state.step < last}


def name_slow(states: Mapping[int, RankState]) -> dict[int, float]:
    """Ranks whose own work took many times the median, with how many."""
    return _beyond({rank: state.own for rank, state in states.items() if state.own > 0})


def name_slow_links(states: Mapping[int, RankState]) -> dict[int, float]:
    """Ranks whose way to the next rank is many times slower than the median, with how many."""
    return _beyond({rank: 1 / state.ring for rank, state in states.items() if state.ring > 0})


def _beyond(seconds: Mapping[int, float]) -> dict[int, float]:
    if len(seconds) < 2:
        return {}
    # The lower median: of two ranks the faster one is what the other is held against.
    usual = statistics.median_low(seconds.values())
    return {rank: value / usual for rank, value in seconds.items() if value > SLOW_FACTOR * usual}


def slowest(states: Sequence[RankState]) -> dict[str, float]:
    """Of each collective the smallest bandwidth that a rank saw."""
    names = dict.fromkeys(name for state in states for name in state.speeds)
    return {name: min(state.speeds[name] for state in states if name in state.speeds) for name in names}
