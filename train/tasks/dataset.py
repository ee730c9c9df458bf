"""The task `dataset`: rows of a person's own data, rewarded by name. Standard library but for Parquet and the hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data import lengths
from data.answers import format_number, read_action, read_number
from data.checks import check_prompt_count
from data.files import Source, find_source
from data.rows import add_reference, read_rows
from data.split import Halves, split_rows
from data.tes_prompt import ACTIONS
from rewards.functions import Rewards, check_rewards
from rewards.q_values import q_value_reward, regret
from settings import BadInput

Row = dict[str, Any]
LATER = "its columns are looked at when the run starts"
MEASURES = {
    "q": ["parse_rate", "accuracy", "mean_regret"],
    "reference": ["exact_match", "parse_rate"],
    "": [],
}  # fmt: skip
FIELDS = {
    "q": ["answer", "best", "regret", "accurate", "parsed"],
    "reference": ["answer", "expected", "exact_match", "parsed"],
    "": [],
}  # fmt: skip
COLUMN_OF = {"parse_rate": "parsed", "accuracy": "accurate", "mean_regret": "regret", "exact_match": "exact_match"}


class DatasetTask:
    """Rows with a prompt; what else is measured follows from the rows: actions with values q, or a reference."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.form, halves, self.settings = read_data(find_source(settings["data"], settings["data_format"]), settings)
        self.train, self.held_out, self.summary = halves.train, halves.held_out, halves.summary
        self.kind = next((kind for kind in ("q", "reference") if kind in self.train[0]), "")
        self.rewards = Rewards(self.settings)
        self.generation_fields = ["source", *FIELDS[self.kind], "reward", *self.rewards.fields]
        measures = MEASURES[self.kind]
        self.smoothed = ["reward", *measures]
        best = {"q": "mean_regret", "reference": "exact_match", "": "reward"}[self.kind]
        self.headline = [f"greedy_{best}", f"sampled_{best}"]
        self.curves = [(name, [f"greedy_{name}", f"sampled_{name}"]) for name in ("reward", *measures)]

    def use_tokenizer(self, tokenizer: Any, context: int = 0) -> dict[str, Any]:
        """Prompts in the form that `chat` asks for, with the system prompt, and none overlong; what they measure.

        To be called once, before training. `context`: the model's max_position_embeddings, 0 where it says none.
        settings["max_completion_length"] is resolved here.
        """
        rows = [*self.train, *self.held_out]
        form = lengths.choose_form(rows, tokenizer, self.settings)
        prepared = lengths.prepare_prompts(rows, form, self.settings["system_prompt"])
        numbered = [row | {"number": number} for number, row in enumerate(prepared)]
        kept, found = lengths.fit(numbered, tokenizer, self.settings, context)
        count = len(self.train)
        self.train = [row for row in kept if row["number"] < count]
        self.held_out = [row for row in kept if row["number"] >= count]
        for half, rows_left in (("training", self.train), ("held-out", self.held_out)):
            if not rows_left:
                raise BadInput(
                    f"every {half} prompt has more than {found.bound} tokens: none is left of them",
                    expected="shorter prompts on both sides, or a longer max_seq_length",
                    hint="--set max_seq_length=N",
                )
        self.train, dropped = _drop_shared(self.train, self.held_out)
        self.settings["max_completion_length"] = found.max_completion_length
        self.rewards.tokenizer = tokenizer
        counted = {"train_rows": len(self.train), "held_out_rows": len(self.held_out)}
        self.summary |= counted | {"dropped_shared_rows": self.summary["dropped_shared_rows"] + dropped}
        return found.as_record()

    def score(self, rows: Sequence[Row], texts: Sequence[str], **given: Any) -> list[dict[str, Any]]:
        """Reward, its parts, and what is measured, for every sample of a batch."""
        rewards = self.rewards.score(rows, texts, **given)
        readable = self.rewards.read(texts, given)
        return [
            {"source": row["source"]} | self._measure(row, text) | reward
            for row, text, reward in zip(rows, readable, rewards, strict=True)
        ]

    def _measure(self, row: Row, text: str) -> dict[str, Any]:
        if self.kind == "q":
            action = read_action(text)
            return {
                "answer": "" if action is None else action,
                "best": row["best"],
                "regret": regret(row["q"], action),
                "accurate": float(action is not None and row["q"][action] == max(row["q"])),
                "parsed": float(action is not None),
            }
        if self.kind == "reference":
            number = read_number(text)
            return {
                "answer": format_number(number),
                "expected": format_number(row["reference"]),
                "exact_match": float(number == row["reference"]),
                "parsed": float(number is not None),
            }
        return {}

    def summarise(self, scores: list[dict[str, Any]]) -> dict[str, float]:
        """Means over a batch of scores; a part that does not apply to a sample is not counted for it."""
        parts = {name: _mean([score[name] for score in scores]) for name in ("reward", *self.rewards.fields)}
        measures = {name: _mean([score[COLUMN_OF[name]] for score in scores]) for name in MEASURES[self.kind]}
        return parts | measures

    def baselines(self) -> dict[str, dict[str, float]]:
        """Policies without learning on the held-out rows, where an answer is one of four actions; else none."""
        if self.kind != "q":
            return {}
        means = [_mean([regret(row["q"], action) for row in self.train]) for action in range(ACTIONS)]
        constant = means.index(min(means))
        rows = self.held_out
        told = {
            "uniform_random": self._summarise_actions([(row, action) for row in rows for action in range(ACTIONS)]),
            "always_0": self._summarise_actions([(row, 0) for row in rows]),
            "best_constant_of_training": {"action": constant}
            | self._summarise_actions([(row, constant) for row in rows]),
        }
        if "least" in rows[0]:
            least = [(row, row["least"]) for row in rows]
            told["least_action_that_meets_the_load"] = self._summarise_actions(least)
        return told

    def _summarise_actions(self, answers: list[tuple[Row, int]]) -> dict[str, float]:
        """By q alone: rewards of one's own are not asked about answers that nobody gave."""
        scores = [self._measure(row, f"[{action}]") for row, action in answers]
        rewards = [q_value_reward(row["q"], action, self.settings) for row, action in answers]
        told = {name: _mean([score[COLUMN_OF[name]] for score in scores]) for name in MEASURES["q"]}
        return told | {"reward_q_value": _mean(rewards)}

    def describe(self) -> dict[str, Any]:
        """Counts and files for the run's record."""
        return self.summary | {"train_prompts": len(self.train), "rewards": self.settings["rewards"]}


def check_dataset(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings with absolute paths, and what the files hold; of what only the run can read, that it will."""
    settings = settings | {"rewards": check_rewards(settings)}
    source = find_source(settings["data"], settings["data_format"])
    settings |= {"data": source.name}
    if source.waits_for_the_run:
        where = f"split {settings['data_split']} of a dataset of the hub" if source.kind == "hub" else "Parquet"
        named = [path.name for path in source.files] or [source.name]
        return settings, {"files": named, "note": f"{where}: {LATER}"}
    _, halves, settings = read_data(source, settings)
    summary = halves.summary | {"rewards": settings["rewards"]}
    check_prompt_count(summary["train_rows"], settings, source.name)
    return settings, summary


def read_data(source: Source, settings: dict[str, Any]) -> tuple[str, Halves, dict[str, Any]]:
    """(format, halves, settings with the rewards named)."""
    form, rows, told = read_rows(source, settings)
    settings = settings | {"rewards": choose_rewards(settings, form, rows)}
    if "q-value" in settings["rewards"] and "q" not in rows[0]:
        raise BadInput(
            f"settings: rewards: q-value, but {rows[0]['file']} has no values of actions",
            expected=f"the columns {', '.join(f'q_action_{action}' for action in range(ACTIONS))}",
            hint="--set rewards=FILE.py:function",
        )
    if "gsm8k" in settings["rewards"] and "reference" not in rows[0]:
        rows = [add_reference(row, row["source"], settings["answer_column"]) for row in rows]
    halves = split_rows(rows, settings, form)
    return form, Halves(halves.train, halves.held_out, told | halves.summary), settings


def choose_rewards(settings: dict[str, Any], form: str, rows: Sequence[Row]) -> list[str]:
    """The rewards asked for, or what the format brings."""
    if settings["rewards"]:
        return list(settings["rewards"])
    if "q" in rows[0]:
        return ["q-value"]
    if form == "gsm8k":
        return ["gsm8k"]
    raise BadInput(
        f"settings: rewards is empty, and rows with the columns {', '.join(rows[0]['columns'])} bring none",
        expected="one or more of gsm8k (compares with answer_column), format:REGEX, length, FILE.py:function",
        hint="--set rewards=FILE.py:function",
    )


def _drop_shared(train: list[Row], held_out: list[Row]) -> tuple[list[Row], int]:
    """Two prompts with the same end are one prompt once they are cut to it."""
    prompts = {str(row["prompt"]) for row in held_out}
    kept = [row for row in train if str(row["prompt"]) not in prompts]
    if not kept:
        raise BadInput(
            "every training prompt is a held-out prompt, too, once they are cut to their ends",
            expected="prompts that differ within the tokens that are kept",
            hint="--set overlong=filter",
        )
    return kept, len(train) - len(kept)


def _mean(values: Sequence[float | None]) -> float:
    told = [value for value in values if value is not None]
    return sum(told) / len(told) if told else 0.0
