"""The trainer's alarms for verl runs: which exist for a task, and the metrics that each gets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from run.alarms import NAMES, Alarm, Alarms, parse_row
from verl_engine.metrics import Metrics

SFT_ALARMS = ("not-a-number", "gradient-spike")
# verl itself logs only the smallest and the largest score of a step.
WITHOUT_COMPLETIONS = (
    "alarms: without trainer.rollout_data_dir there is no generations.csv, and no-signal is raised only if all "
    "completions of a step have the same reward, not if the completions of each prompt do"
)


def task_alarms(task: str) -> tuple[str, ...]:
    """Return the alarms of a task. verl logs differences of probabilities, not of log-probabilities, to vLLM's."""
    return SFT_ALARMS if task == "sft" else tuple(name for name in NAMES if name != "sampling-gap")


def alarm_notes(task: str, *, has_completions: bool) -> list[str]:
    """Return notes on the alarms that a run does not have or that are less precise."""
    if task == "sft":
        missing = ", ".join(name for name in task_alarms("grpo") if name not in SFT_ALARMS)
        return [f"alarms: {missing} are not raised in sft, which generates no completions and has no reward"]
    return [] if has_completions else [WITHOUT_COMPLETIONS]


class VerlAlarms:
    """Raises the alarms of one run, and records which one stopped it."""

    def __init__(self, settings: Mapping[str, Any], held_out_rows: int) -> None:
        self.stopped_by = ""
        self._task = settings["task"]
        self._alarms = Alarms({**settings, "engine": "verl"}, held_out_rows)

    def replay(self, rows: Iterable[Mapping[str, str]], evaluations: Mapping[int, Mapping[str, Any]]) -> None:
        """Restore the state of a resumed run from the rows of metrics.csv and the evaluations by step."""
        if 0 in evaluations:
            self._alarms.check_evaluation("before", 0, evaluations[0])
        for row in rows:
            step = int(row["step"])
            # In the table an empty cell cannot be distinguished from a metric that verl did not log.
            known = {name: value for name, value in parse_row(row).items() if value is not None}
            self._alarms.check_step(step, known)
            if step in evaluations:
                self._alarms.check_evaluation("during", step, evaluations[step])

    def check_step(self, step: int, metrics: Metrics) -> list[Alarm]:
        """Return the alarms of a step's metrics, which may contain NaN."""
        return self._filter(self._alarms.check_step(step, metrics))

    def check_evaluation(self, when: str, step: int, metrics: Metrics) -> list[Alarm]:
        """Return the alarms of an evaluation."""
        return self._filter(self._alarms.check_evaluation(when, step, metrics))

    def _filter(self, raised: list[Alarm]) -> list[Alarm]:
        alarms = [alarm for alarm in raised if alarm.name in task_alarms(self._task)]
        stopping = self._alarms.stopping_alarm(alarms)
        if stopping and not self.stopped_by:
            self.stopped_by = stopping.name
        return alarms


def reward_std_bound(metrics: Metrics) -> dict[str, float]:
    """Return an upper bound of the rewards' standard deviation from verl's smallest and largest score.

    By Popoviciu's inequality it is half of the range, and so 0 if all scores are equal.
    """
    low, high = (metrics.get(f"critic/score/{end}", math.nan) for end in ("min", "max"))
    return {"reward_std": (high - low) / 2} if math.isfinite(high - low) else {}
