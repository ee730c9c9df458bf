"""Reads the reports of torch's NCCL watchdog: which rank waits in which collective.

`WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=1, ...)` names the collective that timed out, and `last enqueued NCCL
work: 1582, last completed NCCL work: 1579` how far the rank got.
Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record

# `[rank5]` is the number of the process, `[Rank 1]` that in its process group. Older releases print only the second.
TIMED_OUT = lazy_pattern(
    r"(?:\[rank(?P<process>\d+)\]:[^\n]{0,120}?)?\[(?:PG [^\]\n]{0,60})?Rank (?P<rank>\d+)\] "
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), "
    r"OpType=(?P<operation>\w+)(?:, NumelIn=(?P<elements>\d+))?[^)]*?Timeout\(ms\)=(?P<milliseconds>\d+)"
)
PROGRESS = lazy_pattern(
    r"(?:\[rank(?P<process>\d+)\]:[^\n]{0,120}?)?Rank (?P<rank>\d+)\][^\n]*?[Ll]ast enqueued(?: NCCL)? work: "
    r"(?P<enqueued>-?\d+)(?:, last completed(?: NCCL)? work: (?P<completed>-?\d+))?"
)
# Of torch's desynchronization report: `[1] finished collective #2, but didn't join collective #3 (count from 1)`.
NOT_JOINED = lazy_pattern(
    r"\[(?P<rank>\d{1,5})\] finished collective #(?P<last>\d+), but didn't join collective #(?P<next>\d+)"
)
RANKS_SHOWN = 8
NEAR = 10  # collectives; a larger difference is probably the number of another process group


class Waiting(Record, frozen=True):
    """A process that waits in a collective. `number` counts the collectives of its process group, from 1."""

    rank: int  # of the process
    group_rank: int
    number: int
    operation: str
    elements: int | None  # of the input; a barrier has one
    seconds: int  # the timeout


class Progress(Record, frozen=True):
    """How far a process got: the numbers of its last enqueued and its last completed collective."""

    rank: int
    enqueued: int
    completed: int | None


def collective_summary(lines: Iterable[str]) -> str:
    """What the watchdog's reports of all ranks say together; empty without a report."""
    text = "\n".join(lines)
    waiting = {each.rank: each for each in map(_waiting, TIMED_OUT.finditer(text))}
    if not waiting:
        return ""
    first = next(iter(waiting.values()))
    parts = [f"{_positions(waiting)} (timeout {first.seconds} s)."]
    if any(each.rank != each.group_rank for each in waiting.values()):
        parts.append(
            "Their process groups have other members, so that the numbers of different groups do not compare."
        )
        return " ".join(parts)
    same = len({(each.number, each.operation) for each in waiting.values()}) == 1
    if not same:
        parts.append(
            "The ranks run different collectives: a branch, a batch or a save depends on the rank, or one is behind."
        )
    parts += [
        f"Rank {each['rank']} finished number {each['last']} (from 1) and did not join number {each['next']}: "
        "a branch of the program calls a collective on some ranks only, or that rank ended or is slow."
        for each in list(NOT_JOINED.finditer(text))[:RANKS_SHOWN]
    ]
    missing = sorted(set(range(max(_known_ranks(text)) + 1)) - set(waiting))
    reached = {each.rank: each for each in map(_progress, PROGRESS.finditer(text))}
    parts += _sentences_about_missing(missing, reached, min(each.number for each in waiting.values()))
    progress = {rank: each for rank, each in reached.items() if rank in waiting}
    parts += _sentences_about_progress(waiting, progress, comparable=same and not missing)
    if all(each.operation == "ALLREDUCE" and each.elements == 1 for each in waiting.values()) and missing:
        parts.append("It is a barrier: the missing rank probably still works (tokenization, evaluation, saving).")
    return " ".join(parts)


def _positions(waiting: Mapping[int, Waiting]) -> str:
    groups: dict[tuple[int, str], list[int]] = {}
    for each in waiting.values():
        groups.setdefault((each.number, each.operation), []).append(each.rank)
    return " and ".join(  # a semicolon could end a command, so that a fix does not contain it
        f"{_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {operation} number {number}"
        for (number, operation), ranks in sorted(groups.items())
    )


def _sentences_about_missing(missing: Sequence[int], reached: Mapping[int, Progress], number: int) -> list[str]:
    """Which ranks do not wait in the collective. Those that print their progress had not enqueued it, or had."""
    late = [rank for rank in missing if rank in reached and 0 < number - reached[rank].enqueued <= NEAR]
    silent = [rank for rank in missing if rank not in late]
    last = max((reached[rank].enqueued for rank in late), default=0)
    others = "read the log there first, the others wait for it."
    return [
        *([f"{_ranks(late)} enqueued number {last} last, and not this one: {others}"] if late else []),
        *([f"{_ranks(silent)} did not report: {others}"] if silent and not late else []),
    ]


def _sentences_about_progress(
    waiting: Mapping[int, Waiting], progress: Mapping[int, Progress], *, comparable: bool
) -> list[str]:
    """Which rank is behind, or that none is. `comparable`: all ranks reported the same collective."""
    completed = {each.rank: each.completed for each in progress.values() if each.completed is not None}
    behind = [rank for rank, number in completed.items() if number < max(completed.values())]
    if behind:
        first, last = min(completed.values()), max(completed.values())
        return [
            f"{_ranks(behind)} completed number {first} last, the others number {last}: read the log there first."
        ]
    if comparable and any(each.enqueued > waiting[each.rank].number for each in progress.values()):
        return ["All ranks had enqueued it: a GPU or a link hangs, or their sizes differ."]
    return []


def _waiting(match: re.Match[str]) -> Waiting:
    elements = match["elements"]
    return Waiting(
        int(match["process"] or match["rank"]),
        int(match["rank"]),
        int(match["number"]),
        match["operation"],
        int(elements) if elements else None,
        int(match["milliseconds"]) // 1000,
    )


def _progress(match: re.Match[str]) -> Progress:
    completed = match["completed"]
    return Progress(
        int(match["process"] or match["rank"]), int(match["enqueued"]), int(completed) if completed else None
    )


def _known_ranks(text: str) -> list[int]:
    """Ranks that any report names; the highest one shows how many there are at least."""
    return [int(number) for number in re.findall(r"[Rr]ank ?(\d{1,5})\]", text)]


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:RANKS_SHOWN])
    more = f" and {len(ranks) - RANKS_SHOWN} others" if len(ranks) > RANKS_SHOWN else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}{more}"
