"""Measure how often the causes of `explain` are right, by their score: the percentages that `explain` prints.

    python tests/campaigns/calibration.py [--write]
    python tests/campaigns/calibration.py --record SET FILE...

Only results for texts that nobody had used for the tables count: texts that were used are found nearly always.
tests/data/unseen_error_texts.jsonl has them: the causes that `explain` found at its first trial, and whether they
were right. --record adds the results of the present tool for the labelled texts of the files, which must be new to
it. A file is a list of objects with `id`, `text`, `cause` (empty or `not-environment` for a text without a cause in
the environment), `also` and `decidable_from_text`; texts of `kind` report are skipped. In a text that is labelled
as undecidable no cause is right; for `not-environment` an error of the program is right. Without --record the table
is printed in Markdown; --write replaces knowledge/calibration.toml and the table of docs/tasks/explain.md.

The percentage of a bin is its share by the rule of succession, (right + 1) of (texts + 2), rounded down. A bin
with a lower one than the bin below it is joined with that bin, so that the percentage never falls with the score. A
text that does not decide stays below 50 %, and so does a bin with few texts.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.record import Record
from envdoctor.explain import Cause, explain
from envdoctor.explain.calibration import Bin, Calibration, Rank
from envdoctor.explain.rank import place_of, rank_of
from envdoctor.knowledge.causes import causes

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests/data/unseen_error_texts.jsonl"
TABLE = ROOT / "envdoctor/knowledge/calibration.toml"
PAGE = ROOT / "docs/tasks/explain.md"
START, END = "<!-- calibration -->\n", "<!-- end of calibration -->\n"
MINIMUMS: dict[Rank, tuple[float, ...]] = {
    "first": (0.3, 0.7, 0.8, 0.9),
    "undecided": (0.3,),
    "similar": (0.2, 0.4),
    "further": (0.0, 0.3),
}
BELOW_UNDECIDED = 0.45
FEW = 30  # texts, too few for a percentage above UNDECIDED: 12 of 21 does not differ from one half
HEADER = "# How often the causes of `explain` were right, by score. Written by tests/campaigns/calibration.py.\n"


def expected_share(right: int, number: int) -> float:
    """The share of the next texts to expect (rule of succession): a bin with few texts is near one half."""
    return (right + 1) / (number + 2)


class Result(Record, frozen=True, kw_only=True):
    """What the tool found in a text that was new to it."""

    set: str  # which texts, when, and the commit of the tool
    id: str
    has_cause: bool = True
    decidable: bool = True
    found: tuple[tuple[Rank, float, bool], ...]  # rank, score, whether it was right


def results_of(name: str, cases: Iterable[dict[str, Any]]) -> Iterator[Result]:
    """The results of the present tool for labelled texts."""
    for case in cases:
        if case.get("kind") == "report":
            continue
        label = "" if case["cause"] == "not-environment" else case["cause"]
        decidable = case.get("decidable_from_text") is not False
        right = {label, *(case.get("also") or ())} if decidable else set()
        if not label:
            right |= {slug for slug, cause in causes().items() if cause.program_error}
        explained = explain(io.BytesIO(case["text"].encode()))
        ranked = sorted((*explained.causes, *explained.program_errors), key=place_of)
        yield Result(
            set=name,
            id=case["id"],
            has_cause=bool(label),
            decidable=decidable,
            found=tuple(
                (_measured_rank(cause, number), cause.score, cause.cause in right)
                for number, cause in enumerate(ranked)
            ),
        )


def _measured_rank(cause: Cause, number: int) -> Rank:
    rank = rank_of(cause, number)
    return rank if cause.score >= MINIMUMS[rank][0] else "further"


def recorded() -> list[Result]:
    """All results at first trials."""
    return [msgspec.json.decode(line, type=Result) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


def measure(results: list[Result]) -> Calibration:
    """The bins of the causes of all texts."""
    found = [cause for result in results for cause in result.found]
    without = [result for result in results if not result.found]
    return Calibration(
        measured=f"{datetime.now(UTC):%Y-%m-%d}",
        texts=len(results),
        undecidable=sum(not result.decidable for result in results),
        without_cause=len(without),
        without_cause_right=sum(not result.has_cause for result in without),
        bin=tuple(each for rank, minimums in MINIMUMS.items() for each in bins_of(rank, minimums, found)),
    )


def bins_of(rank: Rank, minimums: tuple[float, ...], found: list[tuple[Rank, float, bool]]) -> list[Bin]:
    """The bins of one rank, joined until their percentages rise with the score."""
    joined: list[tuple[float, int, int]] = []  # minimum, causes, right
    for lower, upper in zip(minimums, (*minimums[1:], math.inf), strict=True):
        results = [right for its_rank, score, right in found if its_rank == rank and lower <= score < upper]
        joined.append((lower, len(results), sum(results)))
        while len(joined) > 1 and _expected(joined[-1]) <= _expected(joined[-2]):
            (_, number, right), (minimum, number_below, right_below) = joined.pop(), joined.pop()
            joined.append((minimum, number + number_below, right + right_below))
    return [
        Bin(
            rank=rank,
            minimum=minimum,
            causes=number,
            right=right,
            confidence=printed_share(rank, right, number),
        )
        for minimum, number, right in joined
        if number
    ]


def printed_share(rank: Rank, right: int, number: int) -> float:
    """The expected share in whole percent, rounded down: a percentage must not promise more than was measured."""
    return math.floor(100 * min(expected_share(right, number), highest(rank, number)) + 1e-9) / 100


def highest(rank: Rank, number: int) -> float:
    """The highest percentage of a bin with this number of texts."""
    return BELOW_UNDECIDED if rank in ("undecided", "similar") or number < FEW else 1


def _expected(joined: tuple[float, int, int]) -> float:
    _, number, right = joined
    return expected_share(right, number) if number else 0.0


def markdown(measured: Calibration) -> str:
    """The table of the documentation."""
    rows = ["| Cause | Score | Texts | Right | Printed percentage |", "|---|---|---|---|---|"]
    for rank in MINIMUMS:
        bins = [each for each in measured.bin if each.rank == rank]
        for number, each in enumerate(bins):
            upper = bins[number + 1].minimum if number + 1 < len(bins) else 1
            share = f"{each.right} ({each.right / each.causes:.0%})"
            scores = f"{each.minimum:.1f} to {upper:.1f}"
            rows.append(f"| {rank} | {scores} | {each.causes} | {share} | {each.confidence:.0%} |")
    rows.append(f"| none found | | {measured.without_cause} | {measured.without_cause_right} | |")
    counts = f"Measured on {measured.measured} with {measured.texts} labelled texts that had not been used"
    return f"{counts}, {measured.undecidable} of them undecidable.\n\n" + "\n".join(rows) + "\n"


def toml(measured: Calibration) -> str:
    """The content of knowledge/calibration.toml."""
    content = msgspec.to_builtins(measured)
    bins = content.pop("bin")
    lines = [f"{name} = {json.dumps(value)}" for name, value in content.items()]
    for each in bins:
        lines += ["", "[[bin]]", *(f"{name} = {json.dumps(value)}" for name, value in each.items())]
    return HEADER + "\n" + "\n".join(lines) + "\n"


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--record"]:
        _, name, *files = arguments
        known = {result.id for result in recorded()}
        cases = [case for file in files for case in json.loads(Path(file).read_text(encoding="utf-8"))]
        with RESULTS.open("ab") as stream:
            for result in results_of(name, (case for case in cases if case["id"] not in known)):
                stream.write(msgspec.json.encode(result) + b"\n")
        return
    measured = measure(recorded())
    print(markdown(measured))
    if "--write" in arguments:
        TABLE.write_text(toml(measured), encoding="utf-8")
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{START}\n{markdown(measured)}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
