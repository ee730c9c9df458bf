"""The task `dataset` of SFT and DPO: examples from user data. Standard library only, but for Parquet and the Hub."""

from __future__ import annotations

from typing import Any

from data.example_lengths import fit, prepare
from data.examples import read_examples
from data.sources import Source, find_source
from data.split import RowSplit, split_rows
from settings import BadInput
from tasks.dataset import SAMPLED_BYTES, SAMPLED_ROWS, describe_deferred

# The metrics of each trainer: column of metrics.csv and of an evaluation -> name in TRL's log, the same from 0.22.2
# to 1.16. DPO has no token accuracy and entropy before 0.29.
METRICS = {
    "sft": {"loss": "loss", "mean_token_accuracy": "mean_token_accuracy", "entropy": "entropy"},
    "dpo": {
        "loss": "loss", "reward_margin": "rewards/margins", "reward_accuracy": "rewards/accuracies",
        "reward_chosen": "rewards/chosen", "reward_rejected": "rewards/rejected", "logps_chosen": "logps/chosen",
        "logps_rejected": "logps/rejected", "mean_token_accuracy": "mean_token_accuracy", "entropy": "entropy",
    },
}  # fmt: skip
HEADLINE = {"sft": ["loss", "mean_token_accuracy"], "dpo": ["loss", "reward_margin", "reward_accuracy"]}


class ExampleMetrics:
    """What the recorder, the evaluation and the curves read of a task with examples."""

    def __init__(self, trainer: str) -> None:
        self.metrics = METRICS[trainer]
        self.headline = HEADLINE[trainer]
        self.curves = [(name, [name]) for name in self.headline]

    def baselines(self) -> dict[str, dict[str, float]]:
        """Return no untrained policies: the evaluation before the first step is the baseline."""
        return {}


class ExamplesTask(ExampleMetrics):
    """Rows of examples in one of TRL's dataset types."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings["trainer"])
        self.settings = settings
        split = read_data(find_source(settings["data"], "rows"), settings)
        self.train, self.held_out, self.summary = split.train, split.held_out, split.summary

    def use_tokenizer(self, tokenizer: Any, context: int = 0) -> dict[str, Any]:
        """Prepare the examples, apply `overlong`, and return their lengths. Call it once, before training."""
        rows = [*self.train, *self.held_out]
        count = len(self.train)
        numbered = [row | {"number": number} for number, row in enumerate(prepare(rows, tokenizer, self.settings))]
        usable, lengths = fit(numbered, tokenizer, self.settings, context)
        self.train = [row for row in usable if row["number"] < count]
        self.held_out = [row for row in usable if row["number"] >= count]
        for name, part in (("training", self.train), ("held-out", self.held_out)):
            if not part:
                raise BadInput(
                    f"every {name} example has more than {lengths['bound']} tokens: none is left",
                    expected="shorter examples, or a longer max_length",
                    hint="--set overlong=truncate",
                )
        self.summary |= {"train_rows": len(self.train), "held_out_rows": len(self.held_out)}
        return lengths

    def describe(self) -> dict[str, Any]:
        """Return counts and files for the run's record."""
        return self.summary


def check_examples(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (settings with absolute paths, summary of the data); a note for data that only the run can read."""
    source = find_source(settings["data"], "rows")
    settings = settings | {"data": source.name}
    if source.needs_stack:
        return settings, describe_deferred(source, settings)
    if sum(path.stat().st_size for path in source.files) > SAMPLED_BYTES:
        _, _, summary = read_examples(source, settings, most=SAMPLED_ROWS)
        note = f"the first {SAMPLED_ROWS:,} rows of each file were checked; the run checks all of them"
        return settings, summary | {"note": note}
    return settings, read_data(source, settings).summary


def read_data(source: Source, settings: dict[str, Any]) -> RowSplit:
    """Return the split rows."""
    _, rows, files = read_examples(source, settings)
    split = split_rows(rows, settings, "rows")
    return RowSplit(split.train, split.held_out, files | split.summary)
