"""Reports of the NCCL watchdog: which rank waits where."""

from __future__ import annotations

import io
import json

from support.cases import each_case
from support.explained import explain_text
from support.paths import DATA

from envdoctor.explain import explain
from envdoctor.explain.collectives import collective_summary

RUNS = {case["id"]: case["text"] for case in json.loads((DATA / "field_errors/runs.json").read_text())}


def report(rank: int, number: int, operation: str = "ALLREDUCE", elements: int = 1) -> str:
    return (
        f"[rank{rank}]:[E419 10:42:28.8 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn={elements}, NumelOut={elements}, "
        "Timeout(ms)=600000) ran for 600013 milliseconds before timing out."
    )


def progress(rank: int, number: int, enqueued: int, completed: int = 0) -> str:
    return (
        f"[PG ID 0 PG GUID 0 Rank {rank}] Timeout at NCCL work: {number}, last enqueued NCCL work: {enqueued}, "
        f"last completed NCCL work: {completed or number - 1}."
    )


def in_group(process: int, rank: int, number: int, group: int) -> str:
    """The report of a process in a process group, in which it has another number."""
    timeout = report(rank, number, "_ALLGATHER_BASE", 4096).replace(f"[rank{rank}]", f"[rank{process}]")
    place = f"[rank{process}]:[E419 10:42:28.9 ProcessGroupNCCL.cpp:1895] [PG ID {group} PG GUID {group} Rank {rank}]"
    return (
        f"{timeout}\n{place} Timeout at NCCL work: {number}, last enqueued NCCL work: {number + 2}, "
        f"last completed NCCL work: {number - 1}."
    )


def dump(rank: int, source: int, enqueued: int) -> str:
    """What a rank prints after the timeout of another one."""
    return (
        f"[rank{rank}]:[E703 21:51:54.1 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        f"Received a dump signal due to a collective timeout from  rank {source} and we will try our best to dump "
        f"the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {enqueued}.This is"
    )


BEHIND = "The ranks run different collectives: a branch, a batch or a save depends on the rank, or one is behind."


MISSING = (
    "ranks 0, 1, 3 wait in ALLREDUCE number 7 (timeout 600 s). rank 2 did not report: read the log there first, "
    "the others wait for it. It is a barrier: the missing rank probably still works (tokenization, evaluation, "
    "saving)."
)
LATE = (
    "ranks 0, 2 wait in ALLREDUCE number 7 (timeout 600 s). rank 1 enqueued number 6 last, and not this one: read "
    "the log there first, the others wait for it."
)
OF_ANOTHER_GROUP = (
    "rank 0 waits in BROADCAST number 70 (timeout 600 s). rank 1 did not report: read the log there first, the "
    "others wait for it."
)
OTHER_OPERATION = (
    f"rank 1 waits in ALLREDUCE number 7 and rank 0 waits in BROADCAST number 8 (timeout 600 s). {BEHIND}"
)
ENQUEUED = (
    "ranks 0, 1 wait in ALLREDUCE number 7 (timeout 600 s). All ranks had enqueued it: a GPU or a link hangs, or "
    "their sizes differ."
)
GROUPS = (
    "ranks 4, 5 wait in _ALLGATHER_BASE number 7 and rank 0 waits in _ALLGATHER_BASE number 9 (timeout 600 s). Their "
    "process groups have other members, so that the numbers of different groups do not compare."
)
LAST_COMPLETED = (
    f"rank 1 waits in ALLREDUCE number 6 and rank 0 waits in ALLREDUCE number 7 (timeout 600 s). {BEHIND} rank 1 "
    "completed number 5 last, the others number 6: read the log there first."
)


@each_case(
    ("lines", "summary"),
    [
        ([report(0, 7), report(1, 7), report(3, 7)], MISSING),
        ([report(0, 7, elements=9), report(2, 7, elements=9), dump(1, 0, 6)], LATE),
        ([report(0, 70, "BROADCAST", 9), dump(1, 0, 6)], OF_ANOTHER_GROUP),
        ([report(0, 8, "BROADCAST", 9), report(1, 7, elements=9)], OTHER_OPERATION),
        ([report(0, 7, elements=9), report(1, 7, elements=9), progress(0, 7, 9), progress(1, 7, 8)], ENQUEUED),
        ([in_group(4, 0, 7, 1), in_group(5, 1, 7, 1), in_group(0, 0, 9, 2)], GROUPS),
        (
            [report(0, 7, elements=9), report(1, 6, elements=9), progress(0, 7, 9, 6), progress(1, 6, 6, 5)],
            LAST_COMPLETED,
        ),
        ([report(0, 7, elements=9)], "rank 0 waits in ALLREDUCE number 7 (timeout 600 s)."),
    ],
)
def test_each_sentence_of_a_summary(lines: list[str], summary: str) -> None:
    assert collective_summary(lines) == summary


@each_case(
    ("lines", "words"),
    [
        ([report(0, 7), report(2, 7)], ["ranks 0, 2 wait in ALLREDUCE number 7", "rank 1 did not report", "barrier"]),
        ([report(0, 7, elements=9), report(2, 7, elements=9)], ["rank 1 did not report"]),
        ([report(0, 8, "BROADCAST"), report(1, 7)], ["run different collectives", "rank 1 waits"]),
        ([report(0, 7, elements=9), report(1, 7, elements=9), progress(0, 7, 9)], ["All ranks had enqueued it"]),
        ([report(rank, 7) for rank in range(12)], ["and 4 others"]),
    ],
)  # fmt: skip
def test_the_reports_of_all_ranks_are_summarized(lines: list[str], words: list[str]) -> None:
    summary = collective_summary(lines)
    assert all(word in summary for word in words), summary


def test_the_rank_that_does_not_join_a_collective_is_named() -> None:
    text = report(0, 2) + "\n [1] finished collective #2, but didn't join collective #3 (count from 1)\n"
    assert "Rank 1 finished number 2 (from 1) and did not join number 3" in explain_text(text).causes[0].fix


def test_text_without_a_report_has_no_summary() -> None:
    assert collective_summary(["NCCL INFO Init COMPLETE", progress(0, 7, 9)]) == ""


@each_case(
    ("case", "words"),
    [
        ("nccl-alltoall", "ranks 3, 7 wait in ALLTOALL number 4486 (timeout 600 s)"),
        ("nccl-desync", "rank 1 waits in ALLREDUCE number 215121 and rank 0 waits in BROADCAST number 215122"),
        ("nccl-old-format", "ranks 0, 2 did not report"),
    ],
)
def test_a_timeout_during_training_names_the_rank_and_not_the_transport(case: str, words: str) -> None:
    first = explain_text(RUNS[case]).causes[0]
    assert first.cause == "collective-stalled"
    assert words in first.fix
    assert "NCCL_P2P_DISABLE" not in first.fix


def test_a_timeout_of_the_first_collective_is_about_the_transport() -> None:
    first = explain_text(report(1, 1)).causes[0]
    assert first.cause == "nccl-p2p-blocked"
    assert "rank 0 did not report" in first.fix


def test_reports_in_the_middle_of_a_large_log_are_read() -> None:
    filler = b"INFO step loss 0.1\n" * 20_000
    log = filler + (report(0, 900) + "\n").encode() + filler + (report(2, 900) + "\n").encode() + filler
    assert "rank 1 did not report" in explain(io.BytesIO(log)).causes[0].fix
