"""The state of a run, reduced from its events. `train`, `watch` and the JSON output share it."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

from envdoctor.core.record import Record

Event = Mapping[str, Any]
Ending = Literal["", "done", "failed", "interrupted"]

REWARD_STEPS = 120  # steps kept for the sparkline and the time left
SPEED_STEPS = 20  # steps over which the step time and its time_shares are computed
MAX_MESSAGES = 20  # alarms, notes and evaluations kept
STEP_PARTS = ("generate", "score", "update", "sync", "wait")
SMOOTHED = "_smooth"


class Evaluation(Record, frozen=True):
    """Held-out metrics at a step."""

    when: str
    step: int
    metrics: dict[str, float]


class Alarm(Record, frozen=True):
    """An alarm of the trainer."""

    name: str
    step: int
    message: str
    hint: str


class RunError(Record, frozen=True):
    """The error that ended a run."""

    message: str
    expected: str = ""
    hint: str = ""


class RunState(Record, frozen=True, kw_only=True):
    """The state of a run. Times are in seconds; a value that the trainer did not report is null or empty."""

    phase: str = ""
    detail: str = ""
    step: int = 0
    steps: int = 0
    metrics: dict[str, float] = {}  # of the last step
    rewards: tuple[float, ...] = ()  # of the last steps; the smoothed reward where the trainer reports one
    evaluations: tuple[Evaluation, ...] = ()  # the first and the latest
    shares: dict[str, float] = {}  # of a step's time: generate, score, update, sync, wait
    step_seconds: float | None = None  # median of the last steps
    seconds_left: float | None = None
    alarms: tuple[Alarm, ...] = ()
    notes: tuple[str, ...] = ()
    checkpoint: int = 0  # step of the newest checkpoint
    ending: Ending = ""
    error: RunError | None = None
    result: dict[str, Any] = {}
    last_event: float | None = None  # seconds since 1970, by the trainer's clock


class RunReducer:
    """Reduces the events of a run, in order, to its state."""

    def __init__(self) -> None:
        self.phase = self.detail = ""
        self.step = self.steps = self.checkpoint = 0
        self.metrics: dict[str, float] = {}
        self.rewards: deque[tuple[int, float]] = deque(maxlen=REWARD_STEPS)
        self.step_metrics: deque[dict[str, float]] = deque(maxlen=SPEED_STEPS)
        self.step_ends: deque[tuple[int, float]] = deque(maxlen=REWARD_STEPS)  # step and the time of its end
        self.evaluations: dict[int, Evaluation] = {}
        self.alarms: deque[Alarm] = deque(maxlen=MAX_MESSAGES)
        self.notes: deque[str] = deque(maxlen=MAX_MESSAGES)
        self.ending: Ending = ""
        self.error: RunError | None = None
        self.result: dict[str, Any] = {}
        self.last_event: float | None = None

    def apply_all(self, events: Iterable[Event]) -> None:
        """Apply several events."""
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Apply one event. An unknown kind of event, or a field of the wrong type, is ignored."""
        when = finite_number(event.get("t"))
        self.last_event = when if when is not None else self.last_event
        kind = event.get("event")
        if kind in ("phase", "step", "warmup"):  # the run was resumed after its end
            self.ending, self.error = "", None
        apply = getattr(self, f"_apply_{kind}", None) if isinstance(kind, str) else None
        if apply:
            apply(event)

    def _apply_phase(self, event: Event) -> None:
        self.phase, self.detail = printable_line(event.get("name")), printable_line(event.get("detail"))
        self.step_ends.clear()

    def _apply_warmup(self, event: Event) -> None:
        self.step, self.steps = step_number(event.get("step")), step_number(event.get("steps"))
        loss = finite_number(event.get("loss"))
        self.metrics = {} if loss is None else {"loss": loss}
        self._add_step_end(event)

    def _apply_step(self, event: Event) -> None:
        step = step_number(event.get("step"))
        while self.rewards and self.rewards[-1][0] >= step:  # resumed from a checkpoint
            self.rewards.pop()
        self.step, self.steps = step, step_number(event.get("steps"))
        self.metrics = finite_numbers(event.get("metrics"))
        reward = self.metrics.get("reward" + SMOOTHED, self.metrics.get("reward"))
        if reward is not None:
            self.rewards.append((step, reward))
        self.step_metrics.append(self.metrics)
        self._add_step_end(event)

    def _add_step_end(self, event: Event) -> None:
        when = finite_number(event.get("t"))
        if when is None or (self.step_ends and self.step <= self.step_ends[-1][0]):
            self.step_ends.clear()
        if when is not None:
            self.step_ends.append((self.step, when))

    def _apply_eval(self, event: Event) -> None:
        evaluation = parse_evaluation(event)
        earlier = {step: earlier for step, earlier in self.evaluations.items() if step < evaluation.step}
        self.evaluations = earlier | {evaluation.step: evaluation}

    def _apply_alarm(self, event: Event) -> None:
        self.alarms.append(parse_alarm(event))

    def _apply_note(self, event: Event) -> None:
        self.notes.append(printable_line(event.get("message")))

    def _apply_checkpoint(self, event: Event) -> None:
        self.checkpoint = step_number(event.get("step"))

    def _apply_interrupted(self, _event: Event) -> None:
        self.ending = "interrupted"

    def _apply_error(self, event: Event) -> None:
        self.ending = "failed"
        self.error = RunError(*(printable_line(event.get(key)) for key in ("message", "expected", "hint")))

    def _apply_done(self, event: Event) -> None:
        result = event.get("result")
        self.ending, self.result = "done", result if isinstance(result, dict) else {}

    def state(self) -> RunState:
        """Return the run's state after the events so far."""
        evaluations = list(self.evaluations.values())
        if len(evaluations) > MAX_MESSAGES:
            evaluations = [evaluations[0], *evaluations[-MAX_MESSAGES:]]
        measured = [row["seconds"] for row in self.step_metrics if "seconds" in row]
        between = [after - before for (_, before), (_, after) in pairwise(self.step_ends)]
        return RunState(
            phase=self.phase,
            detail=self.detail,
            step=self.step,
            steps=self.steps,
            metrics=self.metrics,
            rewards=tuple(reward for _, reward in self.rewards),
            evaluations=tuple(evaluations),
            shares=time_shares(self.step_metrics),
            step_seconds=statistics.median(measured or between) if measured or between else None,
            seconds_left=self._seconds_left(),
            alarms=tuple(self.alarms),
            notes=tuple(self.notes),
            checkpoint=self.checkpoint,
            ending=self.ending,
            error=self.error,
            result=self.result,
            last_event=self.last_event,
        )

    def _seconds_left(self) -> float | None:
        """Estimate the time left from the ends of the last steps, which include evaluations and checkpoints."""
        if self.ending or len(self.step_ends) < 2 or not self.steps:
            return None
        (first, start), (last, end) = self.step_ends[0], self.step_ends[-1]
        return max(0.0, (end - start) / (last - first) * (self.steps - self.step))


def time_shares(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the share of the step time of each part of a step that the trainer measured."""
    rows = [row for row in rows if row.get("seconds", 0) > 0]
    total = sum(row["seconds"] for row in rows)
    parts = {part: [row[f"{part}_seconds"] for row in rows if f"{part}_seconds" in row] for part in STEP_PARTS}
    return {part: min(1.0, sum(times) / total) for part, times in parts.items() if times}


def parse_evaluation(event: Event) -> Evaluation:
    """Return the evaluation of an `eval` event."""
    metrics = finite_numbers(event.get("metrics"))
    return Evaluation(printable_line(event.get("when")), step_number(event.get("step")), metrics)


def parse_alarm(event: Event) -> Alarm:
    """Return the alarm of an `alarm` event."""
    name, message, hint = (printable_line(event.get(key)) for key in ("name", "message", "hint"))
    return Alarm(name, step_number(event.get("step")), message, hint)


def finite_number(value: object) -> float | None:
    """Return a value as a float; None where it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the range of float
        return None


def step_number(value: object) -> int:
    """Return the number of a step, 0 where the value is not a number."""
    return int(finite_number(value) or 0)


def finite_numbers(value: object) -> dict[str, float]:
    """Return the finite numbers of a JSON object by name."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {printable_line(name): number for name, item in pairs if (number := finite_number(item)) is not None}


def printable_line(value: object) -> str:
    """Return a value as one line for a terminal, with spaces in place of control characters."""
    string = value if isinstance(value, str) else "" if value is None else str(value)
    return "".join(character if character.isprintable() else " " for character in string)
