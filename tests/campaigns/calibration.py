"""Measure how often the causes of `explain` are right, by their score: the percentages that `explain` prints.

    python tests/campaigns/calibration.py [--write] [FILE...]

Without files the labelled texts of tests/data/field_errors are read. A file is a list of objects with `text`, `cause`
(empty or `not-environment` for a text without a cause in the environment), `also` and `decidable_from_text`; texts of
`kind` report are skipped. In a text that is labelled as undecidable no cause is right; for
`not-environment` an error of the program is right. Labels that are no known cause are skipped. Prints the wrong first
causes and a table in Markdown; --write replaces knowledge/calibration.toml and the table of docs/tasks/explain.md.

The percentage of a bin is the lower limit of the Wilson interval (95 %) of its share: a bin with few texts gets a
lower one. A bin with a lower limit than the bin below it is joined with that bin, so that the percentage never falls
with the score.
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

from envdoctor.explain import Cause, explain
from envdoctor.explain.calibration import Bin, Calibration, Rank
from envdoctor.knowledge.causes import causes

ROOT = Path(__file__).resolve().parents[2]
FIELD_ERRORS = ROOT / "tests/data/field_errors"
TABLE = ROOT / "envdoctor/knowledge/calibration.toml"
PAGE = ROOT / "docs/tasks/explain.md"
START, END = "<!-- calibration -->\n", "<!-- end of calibration -->\n"
MINIMUMS: dict[Rank, tuple[float, ...]] = {
    "first": (0.3, 0.5, 0.7, 0.8, 0.9),
    "undecided": (0.3,),
    "further": (0.0, 0.3, 0.5),
}
NORMAL_QUANTILE = 1.96  # of 95 %, both sides
HEADER = "# How often the causes of `explain` were right, by score. Written by tests/campaigns/calibration.py.\n"


def wilson_lower(right: int, number: int) -> float:
    """The lower limit of the 95 % Wilson interval of a share."""
    share, square = right / number, NORMAL_QUANTILE**2
    half = NORMAL_QUANTILE * math.sqrt(share * (1 - share) / number + square / (4 * number**2))
    return (share + square / (2 * number) - half) / (1 + square / number)


def labelled_texts(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The error texts of the files, each text once."""
    seen = set()
    for path in files:
        for case in json.loads(path.read_text(encoding="utf-8")):
            if case.get("kind") != "report" and case["text"] not in seen:
                seen.add(case["text"])
                yield case


def measure(cases: Iterable[dict[str, Any]]) -> Calibration:
    """The bins of the causes of all texts. Prints first causes that are wrong."""
    found: list[tuple[Rank, float, bool]] = []
    texts = skipped = undecidable = 0
    without = [0, 0]
    for case in cases:
        label = "" if case["cause"] == "not-environment" else case["cause"]
        if label and label not in causes():
            skipped += 1
            continue
        texts += 1
        is_decidable = case.get("decidable_from_text") is not False
        undecidable += not is_decidable
        explained = explain(io.BytesIO(case["text"].encode()))
        ranked = sorted((*explained.causes, *explained.program_errors), key=lambda cause: -cause.score)
        if not ranked:
            without[0] += 1
            without[1] += not label
            continue
        right = {label, *(case.get("also") or ())} if is_decidable else set()
        if case["cause"] == "not-environment":
            right |= {slug for slug, cause in causes().items() if cause.program_error}
        for number, cause in enumerate(ranked):
            found.append((_rank(cause, number), cause.score, cause.cause in right))
        if ranked[0].cause not in right:
            note = "" if is_decidable else ", undecidable"
            first = f"{ranked[0].cause} {ranked[0].score:.2f} ({ranked[0].confidence:.0%})"
            print(f"{case['id']}: {first}, label {label or 'none'}{note}", file=sys.stderr)
    return Calibration(
        measured=f"{datetime.now(UTC):%Y-%m-%d}",
        texts=texts,
        skipped=skipped,
        undecidable=undecidable,
        without_cause=without[0],
        without_cause_right=without[1],
        bin=tuple(each for rank, minimums in MINIMUMS.items() for each in bins_of(rank, minimums, found)),
    )


def _rank(cause: Cause, number: int) -> Rank:
    if number or cause.score < MINIMUMS["first"][0]:
        return "further"
    return "undecided" if cause.undecided else "first"


def bins_of(rank: Rank, minimums: tuple[float, ...], found: list[tuple[Rank, float, bool]]) -> list[Bin]:
    """The bins of one rank, joined until their lower limits rise with the score."""
    joined: list[tuple[float, int, int]] = []  # minimum, causes, right
    for lower, upper in zip(minimums, (*minimums[1:], math.inf), strict=True):
        results = [right for its_rank, score, right in found if its_rank == rank and lower <= score < upper]
        joined.append((lower, len(results), sum(results)))
        while len(joined) > 1 and _limit(joined[-1]) <= _limit(joined[-2]):
            (_, number, right), (minimum, number_below, right_below) = joined.pop(), joined.pop()
            joined.append((minimum, number + number_below, right + right_below))
    return [
        Bin(rank=rank, minimum=minimum, causes=number, right=right, confidence=round(wilson_lower(right, number), 2))
        for minimum, number, right in joined
        if number
    ]


def _limit(joined: tuple[float, int, int]) -> float:
    _, number, right = joined
    return wilson_lower(right, number) if number else 0.0


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
    counts = f"Measured on {measured.measured} with {measured.texts} labelled texts"
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
    arguments = [each for each in sys.argv[1:] if each != "--write"]
    measured = measure(labelled_texts([Path(name) for name in arguments] or sorted(FIELD_ERRORS.glob("*.json"))))
    print(markdown(measured))
    if "--write" in sys.argv[1:]:
        TABLE.write_text(toml(measured), encoding="utf-8")
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{START}\n{markdown(measured)}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
