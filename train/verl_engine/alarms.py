"""The trainer's alarms on a run by verl: which there are, and what each is given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from run.alarms import NAMES, Alarm, Alarms, parse_row
from verl_engine.metrics import Numbers

OF_SFT = ("not-a-number", "gradient-spike")
# Of the scores' spread verl itself logs the least and the largest of a step.
WITHOUT_ANSWERS = (
    "alarms: without trainer.rollout_data_dir there is no generations.csv, and no-signal is raised only where all "
    "answers of a step earn the same, not where all answers to each prompt do"
)


def alarms_of(task: str) -> tuple[str, ...]:
    """The alarms that can be raised. verl compares probabilities, not their logarithms, with what vLLM sampled by."""
    return OF_SFT if task == "sft" else tuple(name for name in NAMES if name != "sampling-gap")


def untold(task: str, *, dumped: bool) -> list[str]:
    """What is not watched, or less well, and why."""
    if task == "sft":
        left = ", ".join(name for name in alarms_of("grpo") if name not in OF_SFT)
        return [f"alarms: {left} are not raised in sft, where no answers are sampled and nothing is rewarded"]
    return [] if dumped else [WITHOUT_ANSWERS]


class Watch:
    """Raises the alarms of one run, and remembers which one ended it."""

    def __init__(self, settings: Mapping[str, Any], held_out_rows: int) -> None:
        self.stopped_by = ""
        self._task = settings["task"]
        self._alarms = Alarms({**settings, "engine": "verl"}, held_out_rows)

    def replay(self, rows: Iterable[Mapping[str, str]], looks: Mapping[int, Mapping[str, Any]]) -> None:
        """What a run that is gone on with has seen so far: rows of metrics.csv, looks by their step."""
        if 0 in looks:
            self._alarms.check_evaluation("before", 0, looks[0])
        for row in rows:
            step = int(row["step"])
            # An empty cell is a number that verl did not give, as far as the table can tell.
            self._alarms.check_step(
                step, {name: value for name, value in parse_row(row).items() if value is not None}
            )
            if step in looks:
                self._alarms.check_evaluation("during", step, looks[step])

    def see(self, step: int, given: Numbers) -> list[Alarm]:
        """The alarms of a step's numbers, by our names; a NaN is one."""
        return self._of_task(self._alarms.check_step(step, given))

    def look(self, when: str, step: int, numbers: Numbers) -> list[Alarm]:
        """The alarms of a look at the held-out rows."""
        return self._of_task(self._alarms.check_evaluation(when, step, numbers))

    def _of_task(self, raised: list[Alarm]) -> list[Alarm]:
        told = [alarm for alarm in raised if alarm.name in alarms_of(self._task)]
        stopping = self._alarms.stopping_alarm(told)
        if stopping and not self.stopped_by:
            self.stopped_by = stopping.name
        return told


def spread_by_extremes(numbers: Numbers) -> dict[str, float]:
    """Without the answers: the most that their standard deviation can be, by verl's largest and smallest score.

    0 where all are the same. Popoviciu: at most half of the range.
    """
    low, high = (numbers.get(f"critic/score/{end}", math.nan) for end in ("min", "max"))
    return {"reward_std": (high - low) / 2} if math.isfinite(high - low) else {}
