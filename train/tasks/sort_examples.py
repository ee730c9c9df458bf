"""The task `sort` of SFT and DPO: the sorted digits are the (preferred) completion. Standard library only."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tasks.examples import ExampleMetrics
from tasks.sort import SortTask, check_multisets, count_multisets

Row = dict[str, Any]


class SortExamples(ExampleMetrics):
    """Examples of `sort`, with its split: training and held-out prompts share no digit multiset."""

    symbols = SortTask.symbols

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings["trainer"])
        self.task = SortTask(settings)
        order = random.Random(settings["seed"])  # noqa: S311  (no secret)
        make = {"sft": _example, "dpo": _pair}[settings["trainer"]]
        self.train = [row for source in self.task.train if (row := make(source, order))]
        self.held_out = [row for source in self.task.held_out if (row := make(source, order))]

    def warmup_examples(self, rng: random.Random) -> Iterator[tuple[str, str]]:
        """Yield (prompt, completion) pairs for the warm-up before DPO."""
        return self.task.warmup_examples(rng)

    def describe(self) -> dict[str, Any]:
        """Return counts for the check and the run's record."""
        counts = {"train_rows": len(self.train), "held_out_rows": len(self.held_out)}
        return counts | {"digits": self.task.digits}


def _example(row: Row, _: random.Random) -> Row:
    return row | {"example": {"prompt": row["prompt"], "completion": _completion(row["answer"])}}


def _pair(row: Row, order: random.Random) -> Row | None:
    """The sorted digits, and the same digits in another order; none for digits that are all equal."""
    digits = list(row["answer"])
    if len(set(digits)) == 1:
        return None
    other = digits
    while other == digits:
        other = order.sample(digits, len(digits))
    pair = {"chosen": _completion(row["answer"]), "rejected": _completion("".join(other))}
    return row | {"example": {"prompt": row["prompt"], **pair}}


def _completion(digits: str) -> str:
    return f" {' '.join(digits)}"


def check_sort_examples(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (settings, counts)."""
    check_multisets(settings)
    total, held_out = count_multisets(settings["digits"]), settings["held_out_multisets"]
    return settings, {"train_multisets": total - held_out, "held_out_multisets": held_out}
