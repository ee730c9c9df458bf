"""Records the steps of SFT and DPO: the loss and the metrics of TRL's log, next to what run.recorder records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from run.recorder import Recorder

STEP_FIELDS = ("grad_norm", "learning_rate", "tokens", "tokens_per_second", "seconds", "memory_gib")
TOKENS = "num_tokens"  # of TRL's log, since the start; of DPO from 0.29 on
LOGGED = {"sft": ["grad_norm", "mean_token_accuracy"], "dpo": ["grad_norm", "rewards/margins", "rewards/accuracies"]}


class ExampleRecorder(Recorder):
    """The metrics that the task names, by TRL's names."""

    def __init__(self, run: Any, task: Any, settings: dict[str, Any], **arguments: Any) -> None:
        self.columns, self.smoothed = list(task.metrics), ["loss"]
        self.tokens = 0
        super().__init__(run, task, settings, **arguments)

    @property
    def step_columns(self) -> Sequence[str]:
        """The columns of metrics.csv after the task's own."""
        return STEP_FIELDS

    def logged_names(self) -> Sequence[str]:
        """The names in TRL's log that metrics.csv and the alarms read."""
        liger = self.settings["use_liger_kernel"] and "mean_token_accuracy"  # its loss may have no accuracy
        return [name for name in LOGGED[self.settings["trainer"]] if name != liger]

    def step_metrics(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """TRL's metrics of a step, and its tokens and seconds."""
        before, self.tokens = self.tokens, int(logs.get(TOKENS) or 0)
        tokens, seconds = self.tokens - before or None, self.times["seconds"]
        return {
            **{column: logs.get(name) for column, name in self.task.metrics.items()},
            "grad_norm": logs.get("grad_norm"),
            "learning_rate": logs.get("learning_rate"),
            "tokens": tokens,
            "tokens_per_second": tokens / seconds if tokens and seconds else None,
            "seconds": seconds,
            "memory_gib": self.memory(),
        }
