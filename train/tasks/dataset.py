"""The task `dataset`: user data with rewards by name. Standard library only, except for Parquet and the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data import lengths
from data.answers import format_number, read_action, read_number
from data.checks import check_prompt_count
from data.hub_datasets import held_out_split
from data.other_shapes import NEEDED, describe_other_shape
from data.rows import add_reference, read_rows
from data.sources import Source, find_source
from data.split import RowSplit, split_rows
from data.tes_prompt import ACTIONS
from rewards.environment import NAME as ENVIRONMENT
from rewards.environment import described_tools
from rewards.functions import Rewards, check_rewards
from rewards.q_values import q_value_reward, regret
from rewards.rollouts import check_rollouts
from settings import BadInput
from tasks.metrics import mean

Row = dict[str, Any]
# Files from this size on are checked by their first rows: 30 MB of short rows take 1 GB of memory.
SAMPLED_BYTES, SAMPLED_ROWS = 4 << 20, 20_000
DEFERRED = "its columns are checked when the run starts"
# Metrics and table columns of rows with action values (q), of rows with a reference number, and of other rows.
METRICS = {
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
    """Rows with a prompt. The metrics depend on the rows: action values q, a reference number, or neither."""

    def __init__(self, settings: dict[str, Any]) -> None:
        source = find_source(settings["data"], settings["data_format"])
        self.data_format, split, self.settings = read_data(source, settings)
        self.train, self.held_out, self.summary = split.train, split.held_out, split.summary
        self.kind = next((kind for kind in ("q", "reference") if kind in self.train[0]), "")
        self.correct = {"q": "accurate", "reference": "exact_match", "": ""}[self.kind]
        self.rewards = Rewards(self.settings)
        self.generation_fields = ["source", *FIELDS[self.kind], "reward", *self.rewards.fields]
        metrics = METRICS[self.kind]
        self.smoothed = ["reward", *metrics]
        main_metric = {"q": "mean_regret", "reference": "exact_match", "": "reward"}[self.kind]
        self.headline = [f"greedy_{main_metric}", f"sampled_{main_metric}"]
        self.curves = [(name, [f"greedy_{name}", f"sampled_{name}"]) for name in ("reward", *metrics)]

    def use_tokenizer(self, tokenizer: Any, context: int = 0) -> dict[str, Any]:
        """Render the prompts, apply `overlong`, and return their lengths. Call it once, before training.

        `context` is the model's max_position_embeddings, 0 if unknown. Resolves settings["max_completion_length"].
        """
        rows = [*self.train, *self.held_out]
        form = lengths.choose_form(rows, tokenizer, self.settings)
        prepared = lengths.prepare_prompts(rows, form, self.settings["system_prompt"])
        numbered = [row | {"number": number} for number, row in enumerate(prepared)]
        usable, measured = lengths.fit(numbered, tokenizer, self.settings, context, described_tools(self.settings))
        count = len(self.train)
        self.train = [row for row in usable if row["number"] < count]
        self.held_out = [row for row in usable if row["number"] >= count]
        for name, part in (("training", self.train), ("held-out", self.held_out)):
            if not part:
                raise BadInput(
                    f"every {name} prompt has more than {measured.bound} tokens: none is left",
                    expected="shorter training and held-out prompts, or a longer max_seq_length",
                    hint="--set max_seq_length=N",
                )
        self.train, dropped = _drop_shared(self.train, self.held_out)
        self.settings["max_completion_length"] = measured.max_completion_length
        self.rewards.tokenizer = tokenizer
        counts = {"train_rows": len(self.train), "held_out_rows": len(self.held_out)}
        self.summary |= counts | {"dropped_shared_rows": self.summary["dropped_shared_rows"] + dropped}
        return measured.as_record()

    def score(self, rows: Sequence[Row], texts: Sequence[str], **arguments: Any) -> list[dict[str, Any]]:
        """Return the reward, its parts, and the metrics of every sample of a batch."""
        rewards = self.rewards.score(rows, texts, **arguments)
        decoded = self.rewards.decode(texts, arguments)
        return [
            {"source": row["source"]} | self._measure(row, text) | reward
            for row, text, reward in zip(rows, decoded, rewards, strict=True)
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
        """Return means over a batch; a reward part counts only the samples to which it applies."""
        parts = {name: mean([score[name] for score in scores]) for name in ("reward", *self.rewards.fields)}
        metrics = {name: mean([score[COLUMN_OF[name]] for score in scores]) for name in METRICS[self.kind]}
        return parts | metrics

    def baselines(self) -> dict[str, dict[str, float]]:
        """Return the results of untrained policies on the held-out rows; empty unless rows have action values."""
        if self.kind != "q":
            return {}
        means = [mean([regret(row["q"], action) for row in self.train]) for action in range(ACTIONS)]
        constant = means.index(min(means))
        rows = self.held_out
        results = {
            "uniform_random": self._summarise_actions([(row, action) for row in rows for action in range(ACTIONS)]),
            "always_0": self._summarise_actions([(row, 0) for row in rows]),
            "best_constant_of_training": {"action": constant}
            | self._summarise_actions([(row, constant) for row in rows]),
        }
        if "least" in rows[0]:
            least = [(row, row["least"]) for row in rows]
            results["least_action_that_meets_the_load"] = self._summarise_actions(least)
        return results

    def _summarise_actions(self, actions: list[tuple[Row, int]]) -> dict[str, float]:
        """Summarise by q alone: user functions are not called on these actions."""
        scores = [self._measure(row, f"[{action}]") for row, action in actions]
        rewards = [q_value_reward(row["q"], action, self.settings) for row, action in actions]
        metrics = {name: mean([score[COLUMN_OF[name]] for score in scores]) for name in METRICS["q"]}
        return metrics | {"reward_q_value": mean(rewards)}

    def describe(self) -> dict[str, Any]:
        """Return counts and files for the run's record."""
        return self.summary | {"train_prompts": len(self.train), "rewards": self.settings["rewards"]}


def check_dataset(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (settings with absolute paths, summary of the data); a note for data that only the run can read."""
    settings = check_rollouts(settings) | {"rewards": check_rewards(settings)}
    source = find_source(settings["data"], settings["data_format"])
    settings |= {"data": source.name}
    if source.needs_stack:
        return settings, describe_deferred(source, settings)
    if sum(path.stat().st_size for path in source.files) > SAMPLED_BYTES:
        return _check_sample(source, settings)
    _, split, settings = read_data(source, settings)
    summary = split.summary | {"rewards": settings["rewards"]}
    check_prompt_count(summary["train_rows"], settings, source.name)
    return settings, summary


def describe_deferred(source: Source, settings: dict[str, Any]) -> dict[str, Any]:
    """A summary of data that only the run can read."""
    kind = "Parquet"
    if source.kind == "hub":
        splits = " and ".join(filter(None, (settings["data_split"], held_out_split(settings))))
        kind = f"split {splits} of a Hub dataset"
    return {"files": [path.name for path in source.files] or [source.name], "note": f"{kind}: {DEFERRED}"}


def _check_sample(source: Source, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check the first rows of large files. Their number and the held-out rows are only known to the run."""
    data_format, rows, files = read_rows(source, settings, most=SAMPLED_ROWS)
    rows, settings = _resolve_rewards(settings, data_format, rows)
    note = f"the first {SAMPLED_ROWS:,} rows of each file were checked; the run checks all of them"
    return settings, files | {"rewards": settings["rewards"], "note": note}


def read_data(source: Source, settings: dict[str, Any]) -> tuple[str, RowSplit, dict[str, Any]]:
    """Return (format, split rows, settings with the rewards resolved)."""
    data_format, rows, files = read_rows(source, settings)
    rows, settings = _resolve_rewards(settings, data_format, rows)
    split = split_rows(rows, settings, data_format)
    return data_format, RowSplit(split.train, split.held_out, files | split.summary), settings


def _resolve_rewards(settings: dict[str, Any], data_format: str, rows: list[Row]) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows with what the rewards need, and the settings with the rewards resolved."""
    settings = settings | {"rewards": choose_rewards(settings, data_format, rows)}
    if "q-value" in settings["rewards"] and "q" not in rows[0]:
        raise BadInput(
            f"settings: rewards: q-value, but {rows[0]['file']} has no action values",
            expected=f"the columns {', '.join(f'q_action_{action}' for action in range(ACTIONS))}",
            hint="--set rewards=FILE.py:function",
        )
    if "gsm8k" in settings["rewards"] and "reference" not in rows[0]:
        rows = [add_reference(row, row["source"], settings["answer_column"]) for row in rows]
    return rows, settings


def choose_rewards(settings: dict[str, Any], data_format: str, rows: Sequence[Row]) -> list[str]:
    """Return the rewards of the settings, or the default of the format."""
    if settings["rewards"]:
        return list(settings["rewards"])
    if settings["environment_factory"]:
        return [ENVIRONMENT]
    if "q" in rows[0]:
        return ["q-value"]
    if data_format == "gsm8k":
        return ["gsm8k"]
    columns = rows[0]["columns"]
    shape, option = describe_other_shape(set(columns) - {settings["prompt_column"]})
    if shape:
        raise BadInput(
            f"settings: rewards is empty, and the columns {', '.join(columns)} are {shape}",
            expected=NEEDED,
            hint=option or "--reward FILE.py:FUNCTION",
        )
    raise BadInput(
        f"settings: rewards is empty, and the columns {', '.join(columns)} imply no default reward",
        expected="one or more of gsm8k (compares with answer_column), format:REGEX, length, FILE.py:function",
        hint="--set rewards=FILE.py:function",
    )


def _drop_shared(train: list[Row], held_out: list[Row]) -> tuple[list[Row], int]:
    """Drop training prompts that equal a held-out prompt after truncation."""
    prompts = {str(row["prompt"]) for row in held_out}
    distinct = [row for row in train if str(row["prompt"]) not in prompts]
    if not distinct:
        raise BadInput(
            "after truncation every training prompt equals a held-out prompt",
            expected="prompts that differ within the tokens that are kept",
            hint="--set overlong=filter",
        )
    return distinct, len(train) - len(distinct)
