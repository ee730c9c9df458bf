"""The task `tes`: choose the output of the heat pump for the next hour of a thermal energy storage plant."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Any

from data.answers import parse_action
from data.checks import check_prompt_count
from data.tes import Decision, read_split
from data.tes_prompt import ACTIONS, Facts, least_action, list_symbols, tokenise
from rewards.q_values import q_value_reward, regret
from settings import BadInput, expand_user
from tasks.metrics import mean


class TesTask:
    """Prompts of eight tokens, completions `[0]` to `[3]`, rewarded by the value q of the chosen action."""

    symbols = ["[", "]", *(str(action) for action in range(ACTIONS)), *list_symbols()]
    generation_fields = ["source", "answer", "best", "reward", "regret", "accurate", "parsed"]
    smoothed = ["reward", "parse_rate", "accuracy", "mean_regret"]
    curves = [
        ("reward", ["greedy_reward", "sampled_reward"]),
        ("mean_regret", ["greedy_mean_regret", "sampled_mean_regret"]),
        ("accuracy", ["greedy_accuracy", "sampled_accuracy"]),
    ]
    headline = ["greedy_mean_regret", "sampled_mean_regret", "greedy_accuracy"]
    correct = "accurate"

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        split = read_split(settings["data"], settings["held_out"])
        self.summary = split.summary
        self._training_decisions = split.train
        rng = random.Random(settings["seed"])  # noqa: S311  (no secret)
        self.train = [
            _row(decision, self._perturb(decision.facts, rng))
            for _ in range(max(1, settings["augment"]))
            for decision in split.train
        ]
        self.held_out = [_row(decision, decision.facts) for decision in split.held_out]

    def _perturb(self, facts: Facts, rng: random.Random) -> Facts:
        """Add measurement noise to the facts; the values q do not change.

        Gauges of stored heat and forecasts have errors of a few per cent, and a decision must not depend on the last
        digit. Without this noise the model memorises the 120 rows; the recipe has the figures.
        """
        if not self.settings["augment"]:
            return facts
        share, width = self.settings["forecast_noise"], self.settings["energy_noise"]
        energy = facts.energy + rng.uniform(-width, width)
        return dataclasses.replace(
            facts,
            energy=min(facts.capacity, max(0.0, energy)),
            loads=tuple(load * (1 + rng.gauss(0, share)) for load in facts.loads),
            co2=tuple(co2 * (1 + rng.gauss(0, share)) for co2 in facts.co2),
            next_low5=facts.next_low5 * (1 + rng.gauss(0, share)),
        )

    def warmup_examples(self, rng: random.Random) -> Iterator[tuple[str, str]]:
        """Yield (prompt, completion) pairs without end. The actions are random: they teach only the format."""
        while True:
            yield rng.choice(self.train)["prompt"], f"[ {rng.randrange(ACTIONS)} ]"

    def score(self, rows: Sequence[dict[str, Any]], texts: Sequence[str], **_: Any) -> list[dict[str, Any]]:
        """Return the reward and metrics of each completion; an invalid one has the regret of the worst action."""
        return [self._score(row, text) for row, text in zip(rows, texts, strict=True)]

    def _score(self, row: dict[str, Any], completion: str) -> dict[str, Any]:
        q, action = row["q"], parse_action(completion)
        return {
            "source": row["source"],
            "answer": "" if action is None else action,
            "best": row["best"],
            "reward": q_value_reward(q, action, self.settings),
            "regret": regret(q, action),
            "accurate": float(action is not None and q[action] == max(q)),
            "parsed": float(action is not None),
        }

    def summarise(self, scores: list[dict[str, Any]]) -> dict[str, float]:
        """Return means over a batch of scores."""
        return {
            "reward": mean([score["reward"] for score in scores]),
            "parse_rate": mean([score["parsed"] for score in scores]),
            "accuracy": mean([score["accurate"] for score in scores]),
            "mean_regret": mean([score["regret"] for score in scores]),
        }

    def baselines(self) -> dict[str, dict[str, float]]:
        """Return the results of untrained policies on the held-out rows."""
        means = [mean([regret(row.q, action) for row in self._training_decisions]) for action in range(ACTIONS)]
        constant, rows = means.index(min(means)), self.held_out
        return {
            "uniform_random": self._summarise_actions([(row, action) for row in rows for action in range(ACTIONS)]),
            "always_0": self._summarise_actions([(row, 0) for row in rows]),
            "best_constant_of_training": {"action": constant}
            | self._summarise_actions([(row, constant) for row in rows]),
            "least_action_that_meets_the_load": self._summarise_actions([(row, row["least"]) for row in rows]),
        }

    def _summarise_actions(self, actions: list[tuple[dict[str, Any], int]]) -> dict[str, float]:
        return self.summarise([self._score(row, f"[{action}]") for row, action in actions])

    def describe(self) -> dict[str, Any]:
        """Return counts and files for the run's record."""
        return self.summary | {"train_prompts": len(self.train)}


def check_tes(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (settings with an absolute data path, summary of the files)."""
    if settings["data"]:
        settings = settings | {"data": str(expand_user(settings["data"]).resolve())}
    if settings["max_completion_length"] < 4:
        raise BadInput(
            f"settings: max_completion_length = {settings['max_completion_length']}",
            expected="at least 4: a completion is [, the action, ] and the end token",
            hint="--set max_completion_length=5",
        )
    summary = read_split(settings["data"], settings["held_out"]).summary
    rows, copies = summary["train_rows"], max(1, settings["augment"])
    check_prompt_count(rows * copies, settings, f"{rows} rows, augment = {settings['augment']}")
    return settings, summary


def _row(decision: Decision, facts: Facts) -> dict[str, Any]:
    return {
        "prompt": " ".join(tokenise(facts)),
        "q": list(decision.q),
        "best": decision.best,
        "least": least_action(facts),
        "source": decision.source,
    }
