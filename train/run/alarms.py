"""Alarms of a run: problems that its metrics show, with the numbers and a hint. Standard library only.

Each alarm is raised once, and again only after it has cleared. A missing or null metric is ignored, except by
`not-a-number`, which counts a null after a number.
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
    """A problem since `step`, with the numbers and a hint."""

    name: str
    step: int
    message: str
    hint: str

    def as_record(self) -> dict[str, Any]:
        """The fields of the event `alarm`."""
        return asdict(self)


def check_alarm_names(names: list[str]) -> list[str]:
    """Refuse unknown names in `stop_on`."""
    for name in names:
        if name not in NAMES:
            raise BadInput(
                f"settings: stop_on = {name!r}{suggest(name, list(NAMES))}",
                expected=f"one or more of {', '.join(NAMES)}",
                hint=f"--set stop_on={NAMES[0]},{NAMES[3]}",
            )
    return names


class Alarms:
    """The alarms of one run; `held_out_rows` gives the standard error of an evaluation."""

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
        """The alarms that the metrics of a step raise; pass NaN unchanged, not as null.

        After a resume, pass the existing rows of metrics.csv first (`parse_row`), and ignore their alarms.
        """
        self._overfitting.note(metrics)
        raised = [self._judge(name, step, judge(metrics)) for name, judge in self._each_step.items()]
        return [alarm for alarm in raised if alarm]

    def check_evaluation(self, when: str, step: int, metrics: Metrics) -> list[Alarm]:
        """The alarms that an evaluation raises; `when` is before, during or after."""
        alarm = self._judge("overfitting", step, self._overfitting(step, metrics, first=when == "before"))
        return [alarm] if alarm else []

    def stopping_alarm(self, alarms: list[Alarm]) -> Alarm | None:
        """The first of these alarms that is in `stop_on`."""
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
