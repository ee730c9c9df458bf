"""Alarms of a run: what its numbers say is wrong, with those numbers and what to try. Standard library only.

Each alarm is raised once, and again only after it has cleared. A metric that is missing, or null, is no evidence;
`not-a-number` alone takes a null where there was a number before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from run.alarm_definitions import (
    Collapse,
    GradientSpike,
    Metrics,
    NoSignal,
    NotANumber,
    Overfitting,
    SamplingGap,
    Truncation,
    Verdict,
)
from settings import BadInput, suggest

NAMES = ("no-signal", "collapse", "overfitting", "not-a-number", "gradient-spike", "truncation", "sampling-gap")


@dataclass(frozen=True)
class Alarm:
    """What is wrong since `step`, with the numbers, and what to try."""

    name: str
    step: int
    message: str
    hint: str

    def as_record(self) -> dict[str, Any]:
        """The fields of the event `alarm`."""
        return asdict(self)


def check_alarm_names(names: list[str]) -> list[str]:
    """The names given to `stop_on`, each of an alarm that there is."""
    for name in names:
        if name not in NAMES:
            raise BadInput(
                f"settings: stop_on = {name!r}{suggest(name, list(NAMES))}",
                expected=f"some of {', '.join(NAMES)}",
                hint=f"--set stop_on={NAMES[0]},{NAMES[3]}",
            )
    return names


class Alarms:
    """Watches one run. `settings` are all of its settings; `held_out_rows` says how much chance a look contains."""

    def __init__(self, settings: Mapping[str, Any], held_out_rows: int = 100) -> None:
        self.settings = settings
        self.stop_on = frozenset(check_alarm_names(list(settings.get("stop_on", ()))))
        self.active: set[str] = set()
        self._each_step: dict[str, Callable[[Metrics], Verdict]] = {
            "not-a-number": NotANumber(settings),
            "no-signal": NoSignal(settings),
            "collapse": Collapse(settings),
            "gradient-spike": GradientSpike(settings),
            "truncation": Truncation(settings),
            "sampling-gap": SamplingGap(settings),
        }
        self._overfitting = Overfitting(settings, held_out_rows)

    def check_step(self, step: int, metrics: Metrics) -> list[Alarm]:
        """The alarms that one step's metrics raise. Give them raw: a NaN that was made null is seen less surely.

        After a resume, show it the old rows of metrics.csv first (`parse_row`), and drop what it answers.
        """
        self._overfitting.note(metrics)
        raised = [self._judge(name, step, judge(metrics)) for name, judge in self._each_step.items()]
        return [alarm for alarm in raised if alarm]

    def check_evaluation(self, when: str, step: int, metrics: Metrics) -> list[Alarm]:
        """The alarms that a look at the held-out rows raises; `when` is before, during or after.

        A fall that is seen after the last step is told as well.
        """
        alarm = self._judge("overfitting", step, self._overfitting(step, metrics, first=when == "before"))
        return [alarm] if alarm else []

    def stopping_alarm(self, alarms: list[Alarm]) -> Alarm | None:
        """The first of these alarms that ends the run, by `stop_on`."""
        return next((alarm for alarm in alarms if alarm.name in self.stop_on), None)

    def _judge(self, name: str, step: int, verdict: Verdict) -> Alarm | None:
        if verdict is True:
            self.active.discard(name)
        if isinstance(verdict, bool) or name in self.active:
            return None
        self.active.add(name)
        return Alarm(name, step, *verdict)


def parse_row(row: Mapping[str, str]) -> dict[str, float | None]:
    """A row of metrics.csv as numbers: {"step": "3", "loss": "nan", "kl": ""} -> step 3.0, loss nan, kl None."""
    return {name: _parse_cell(cell) for name, cell in row.items()}


def _parse_cell(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
