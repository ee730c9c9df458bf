"""Reads the reports of torch's NCCL watchdog: which rank waits in which collective.

`WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=1, ...)` names the collective that timed out, and `last enqueued NCCL
work: 1582, last completed NCCL work: 1579` how far the rank got.
Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from envdoctor.core.record import Record

TIMED_OUT = re.compile(
    r"\[Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), "
    r"OpType=(?P<operation>\w+)(?:, NumelIn=(?P<elements>\d+))?[^)]*?Timeout\(ms\)=(?P<milliseconds>\d+)"
)
PROGRESS = re.compile(r"Rank (?P<rank>\d+)\][^\n]*?last enqueued(?: NCCL)? work: (?P<enqueued>-?\d+)")
RANKS_SHOWN = 8


class Waiting(Record, frozen=True):
    """A rank that waits in a collective. `number` counts the collectives of its process group, from 1."""

    rank: int
    number: int
    operation: str
    elements: int | None  # of the input; a barrier has one
    seconds: int  # the timeout


def collective_summary(lines: Iterable[str]) -> str:
    """What the watchdog's reports of all ranks say together; empty without a report."""
    text = "\n".join(lines)
    waiting = {int(match["rank"]): _waiting(match) for match in TIMED_OUT.finditer(text)}
    if not waiting:
        return ""
    first = next(iter(waiting.values()))
    groups: dict[tuple[int, str], list[int]] = {}
    for each in waiting.values():
        groups.setdefault((each.number, each.operation), []).append(each.rank)
    positions = " and ".join(  # a semicolon could end a command, so that a fix does not contain it
        f"{_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {operation} number {number}"
        for (number, operation), ranks in sorted(groups.items())
    )
    parts = [f"{positions} (timeout {first.seconds} s)."]
    if len(groups) > 1:
        parts.append(
            "The ranks run different collectives: a branch, a batch or a save depends on the rank, or one is behind."
        )
    missing = sorted(set(range(max(_known_ranks(text)) + 1)) - set(waiting))
    if missing:
        parts.append(f"{_ranks(missing)} did not report: read the log there first, the others wait for it.")
    ahead = [int(match["rank"]) for match in PROGRESS.finditer(text) if _is_ahead(match, waiting)]
    if ahead and len(groups) == 1 and not missing:
        parts.append("All ranks had enqueued it: a GPU or a link hangs, or their sizes differ.")
    if all(each.operation == "ALLREDUCE" and each.elements == 1 for each in waiting.values()) and missing:
        parts.append("It is a barrier: the missing rank probably still works (tokenization, evaluation, saving).")
    return " ".join(parts)


def _waiting(match: re.Match[str]) -> Waiting:
    elements = match["elements"]
    return Waiting(
        int(match["rank"]),
        int(match["number"]),
        match["operation"],
        int(elements) if elements else None,
        int(match["milliseconds"]) // 1000,
    )


def _known_ranks(text: str) -> list[int]:
    """Ranks that any report names; the highest one shows how many there are at least."""
    return [int(number) for number in re.findall(r"[Rr]ank ?(\d{1,5})\]", text)]


def _is_ahead(match: re.Match[str], waiting: dict[int, Waiting]) -> bool:
    rank = int(match["rank"])
    return rank in waiting and int(match["enqueued"]) > waiting[rank].number


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:RANKS_SHOWN])
    more = f" and {len(ranks) - RANKS_SHOWN} others" if len(ranks) > RANKS_SHOWN else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}{more}"
