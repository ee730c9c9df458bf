"""The task `sort`: sort the digits of the prompt. Standard library only."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from data.checks import check_prompt_count
from settings import BadInput
from tasks.metrics import mean

DIGITS = "0123456789"
MAX_ORDERS = 24  # prompts per multiset: all orders of four digits


class SortTask:
    """Prompts `4 1 3 2 =`, completions `1234`; training and held-out prompts share no digit multiset."""

    symbols = [*DIGITS, "="]
    # Columns of generations.csv after step, prompt and completion
    generation_fields = ["answer", "expected", "reward", "exact_match", "parsed"]
    smoothed = ["reward", "exact_match", "parse_rate"]
    curves = [("exact_match", ["greedy_exact_match", "sampled_exact_match"]), ("parse_rate", ["greedy_parse_rate"])]
    headline = ["greedy_exact_match", "sampled_exact_match"]
    correct = "exact_match"

    def __init__(self, settings: dict[str, Any]) -> None:
        self.digits = settings["digits"]
        training, held_out = split_multisets(self.digits, settings["held_out_multisets"], settings["seed"])
        order = random.Random(settings["seed"])  # noqa: S311  (no secret)
        # All orders of each training multiset, but only one order of each held-out multiset.
        self.train = [self._row(digits) for multiset in training for digits in _orders(multiset, order)]
        self.held_out = [self._row("".join(order.sample(multiset, self.digits))) for multiset in held_out]
        order.shuffle(self.train)

    def _row(self, digits: str) -> dict[str, Any]:
        return {"prompt": " ".join([*digits, "="]), "answer": "".join(sorted(digits))}

    def warmup_examples(self, rng: random.Random) -> Iterator[tuple[str, str]]:
        """Yield (prompt, completion) pairs for the warm-up without end, from training prompts only."""
        while True:
            row = rng.choice(self.train)
            yield row["prompt"], " ".join(row["answer"])

    def score(self, rows: Sequence[dict[str, Any]], texts: Sequence[str], **_: Any) -> list[dict[str, Any]]:
        """Return the reward and metrics of each completion."""
        return [self._score(row, text) for row, text in zip(rows, texts, strict=True)]

    def _score(self, row: dict[str, Any], completion: str) -> dict[str, Any]:
        parsed = bool(re.fullmatch(f"[0-9]{{{self.digits}}}", completion))
        exact = float(completion == row["answer"])
        return {
            "answer": completion if parsed else "",
            "expected": row["answer"],
            "reward": exact,
            "exact_match": exact,
            "parsed": float(parsed),
        }

    def summarise(self, scores: list[dict[str, Any]]) -> dict[str, float]:
        """Return means over a batch of scores."""
        return {
            "exact_match": mean(score["exact_match"] for score in scores),
            "parse_rate": mean(score["parsed"] for score in scores),
            "reward": mean(score["reward"] for score in scores),
        }

    def baselines(self) -> dict[str, dict[str, float]]:
        """Return the exact match of two trivial policies on the held-out prompts."""
        unchanged = mean(float("".join(row["prompt"].split()[:-1]) == row["answer"]) for row in self.held_out)
        random_order = mean(1.0 / _count_orders(row["answer"]) for row in self.held_out)
        return {"copy_the_prompt": {"exact_match": unchanged}, "random_order": {"exact_match": random_order}}

    def describe(self) -> dict[str, Any]:
        """Return counts for the check and the run's record."""
        return {"train_prompts": len(self.train), "held_out_prompts": len(self.held_out), "digits": self.digits}


def check_sort(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (checked settings, counts)."""
    check_multisets(settings)
    total = count_multisets(settings["digits"])
    if settings["max_completion_length"] <= settings["digits"]:
        raise BadInput(
            f"settings: max_completion_length = {settings['max_completion_length']} for {settings['digits']} digits",
            expected="at least one token for each digit and the end token",
            hint=f"--set max_completion_length={settings['digits'] + 2}",
        )
    held_out = settings["held_out_multisets"]
    training, _ = split_multisets(settings["digits"], held_out, settings["seed"])
    prompts = sum(min(MAX_ORDERS, _count_orders(multiset)) for multiset in training)
    check_prompt_count(prompts, settings, f"of {total - held_out} multisets of {settings['digits']} digits")
    return settings, {"train_multisets": total - held_out, "held_out_multisets": held_out}


def check_multisets(settings: dict[str, Any]) -> None:
    """Refuse to hold out no multiset, or all."""
    total = count_multisets(settings["digits"])
    if not 1 <= settings["held_out_multisets"] < total:
        raise BadInput(
            f"settings: held_out_multisets = {settings['held_out_multisets']}",
            expected=f"from 1 to {total - 1}: {settings['digits']} digits form {total} multisets",
            hint=f"--set held_out_multisets={100 if total > 100 else total // 5}",
        )


def count_multisets(digits: int) -> int:
    """Return the number of digit multisets of this size: 715 for four."""
    return sum(1 for _ in itertools.combinations_with_replacement(DIGITS, digits))


def split_multisets(digits: int, held_out: int, seed: int) -> tuple[list[str], list[str]]:
    """Return disjoint (training multisets, held-out multisets), each as sorted digits."""
    multisets = ["".join(combination) for combination in itertools.combinations_with_replacement(DIGITS, digits)]
    random.Random(seed).shuffle(multisets)  # noqa: S311  (no secret)
    return multisets[held_out:], multisets[:held_out]


def _orders(multiset: str, order: random.Random) -> list[str]:
    """Return distinct orders of the digits: all for four digits, at most 24 for more."""
    if len(multiset) <= 4:
        return sorted({"".join(combination) for combination in itertools.permutations(multiset)})
    return sorted({"".join(order.sample(multiset, len(multiset))) for _ in range(MAX_ORDERS)})


def _count_orders(digits: str) -> int:
    count, left = 1, len(digits)
    for digit in set(digits):
        for index in range(digits.count(digit)):
            count = count * (left - index) // (index + 1)
        left -= digits.count(digit)
    return count
