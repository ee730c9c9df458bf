"""A run as its events tell it: one fold, which the live display of `train` and `watch` and the JSON share."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

from envdoctor.core.records import Record

Event = Mapping[str, Any]
Ending = Literal["", "done", "failed", "interrupted"]

HISTORY = 120  # steps that are kept for the sparkline and the pace
PACE_STEPS = 20  # steps that times and shares are taken over
TOLD = 20  # alarms and notes that are kept
PARTS = ("generate", "score", "update", "sync", "wait")
SMOOTH = "_smooth"


class Look(Record, frozen=True):
    """Held-out metrics at a step."""

    when: str
    step: int
    metrics: dict[str, float]


class Raised(Record, frozen=True):
    """An alarm of the trainer."""

    name: str
    step: int
    message: str
    hint: str


class Trouble(Record, frozen=True):
    """The error that ended a run."""

    message: str
    expected: str = ""
    hint: str = ""


class RunState(Record, frozen=True, kw_only=True):
    """What is known of a run's course. Times in seconds; what the trainer did not tell is null or empty."""

    phase: str = ""
    detail: str = ""
    step: int = 0
    steps: int = 0
    metrics: dict[str, float] = {}  # of the last step
    rewards: tuple[float, ...] = ()  # of the last steps, smoothed where the trainer smooths
    looks: tuple[Look, ...] = ()  # the first and the latest ones
    shares: dict[str, float] = {}  # of a step's time: generate, score, update, sync
    step_seconds: float | None = None  # median of the last steps
    seconds_left: float | None = None
    alarms: tuple[Raised, ...] = ()
    notes: tuple[str, ...] = ()
    checkpoint: int = 0  # step of the newest one
    ending: Ending = ""
    trouble: Trouble | None = None
    result: dict[str, Any] = {}
    last_event: float | None = None  # seconds since 1970, by the trainer's clock


class Course:
    """Takes events one by one, in order, and says at any time where the run stands."""

    def __init__(self) -> None:
        self.phase = self.detail = ""
        self.step = self.steps = self.checkpoint = 0
        self.metrics: dict[str, float] = {}
        self.rewards: deque[tuple[int, float]] = deque(maxlen=HISTORY)
        self.times: deque[dict[str, float]] = deque(maxlen=PACE_STEPS)
        self.moments: deque[tuple[int, float]] = deque(maxlen=HISTORY)  # step and when it ended: evaluations count
        self.looks: dict[int, Look] = {}
        self.alarms: deque[Raised] = deque(maxlen=TOLD)
        self.notes: deque[str] = deque(maxlen=TOLD)
        self.ending: Ending = ""
        self.trouble: Trouble | None = None
        self.result: dict[str, Any] = {}
        self.last_event: float | None = None

    def take_all(self, events: Iterable[Event]) -> None:
        """Several events."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """One event. Kinds that are not known, and fields of another type than ours, change nothing."""
        when = number(event.get("t"))
        self.last_event = when if when is not None else self.last_event
        kind = event.get("event")
        if kind in ("phase", "step", "warmup"):  # a run that is resumed goes on after its end
            self.ending, self.trouble = "", None
        take = getattr(self, f"_take_{kind}", None) if isinstance(kind, str) else None
        if take:
            take(event)

    def _take_phase(self, event: Event) -> None:
        self.phase, self.detail = text(event.get("name")), text(event.get("detail"))
        self.moments.clear()

    def _take_warmup(self, event: Event) -> None:
        self.step, self.steps = whole(event.get("step")), whole(event.get("steps"))
        loss = number(event.get("loss"))
        self.metrics = {} if loss is None else {"loss": loss}
        self._moment(event)

    def _take_step(self, event: Event) -> None:
        step = whole(event.get("step"))
        while self.rewards and self.rewards[-1][0] >= step:  # gone back to a checkpoint
            self.rewards.pop()
        self.step, self.steps = step, whole(event.get("steps"))
        self.metrics = numbers(event.get("metrics"))
        reward = self.metrics.get("reward" + SMOOTH, self.metrics.get("reward"))
        if reward is not None:
            self.rewards.append((step, reward))
        self.times.append(self.metrics)
        self._moment(event)

    def _moment(self, event: Event) -> None:
        when = number(event.get("t"))
        if when is None or (self.moments and self.step <= self.moments[-1][0]):
            self.moments.clear()
        if when is not None:
            self.moments.append((self.step, when))

    def _take_eval(self, event: Event) -> None:
        look = Look(text(event.get("when")), whole(event.get("step")), numbers(event.get("metrics")))
        self.looks = {step: each for step, each in self.looks.items() if step < look.step} | {look.step: look}

    def _take_alarm(self, event: Event) -> None:
        name, message, hint = (text(event.get(key)) for key in ("name", "message", "hint"))
        self.alarms.append(Raised(name, whole(event.get("step")), message, hint))

    def _take_note(self, event: Event) -> None:
        self.notes.append(text(event.get("message")))

    def _take_checkpoint(self, event: Event) -> None:
        self.checkpoint = whole(event.get("step"))

    def _take_interrupted(self, _event: Event) -> None:
        self.ending = "interrupted"

    def _take_error(self, event: Event) -> None:
        self.ending = "failed"
        self.trouble = Trouble(*(text(event.get(key)) for key in ("message", "expected", "hint")))

    def _take_done(self, event: Event) -> None:
        result = event.get("result")
        self.ending, self.result = "done", result if isinstance(result, dict) else {}

    def state(self) -> RunState:
        """Where the run stands."""
        looks = list(self.looks.values())
        return RunState(
            phase=self.phase,
            detail=self.detail,
            step=self.step,
            steps=self.steps,
            metrics=self.metrics,
            rewards=tuple(reward for _, reward in self.rewards),
            looks=tuple(looks if len(looks) <= TOLD else [looks[0], *looks[-TOLD:]]),
            shares=shares(self.times),
            step_seconds=self._step_seconds(),
            seconds_left=self._seconds_left(),
            alarms=tuple(self.alarms),
            notes=tuple(self.notes),
            checkpoint=self.checkpoint,
            ending=self.ending,
            trouble=self.trouble,
            result=self.result,
            last_event=self.last_event,
        )

    def _step_seconds(self) -> float | None:
        """The median of what the trainer measured, else of the time between two steps."""
        measured = [row["seconds"] for row in self.times if "seconds" in row]
        moments = list(self.moments)
        between = [after - before for (_, before), (_, after) in pairwise(moments)]
        return statistics.median(measured or between) if measured or between else None

    def _seconds_left(self) -> float | None:
        """At the pace of the last steps, with the looks and checkpoints between them."""
        if self.ending or len(self.moments) < 2 or not self.steps:
            return None
        (first, began), (last, ended) = self.moments[0], self.moments[-1]
        return max(0.0, (ended - began) / (last - first) * (self.steps - self.step))


def shares(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """What part of the steps' time each part took, of those that the trainer measured."""
    rows = [row for row in rows if row.get("seconds", 0) > 0]
    whole_time = sum(row["seconds"] for row in rows)
    parts = {part: [row[f"{part}_seconds"] for row in rows if f"{part}_seconds" in row] for part in PARTS}
    return {part: min(1.0, sum(times) / whole_time) for part, times in parts.items() if times}


def number(value: object) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond every float
        return None


def whole(value: object) -> int:
    """A step, 0 where there is none."""
    found = number(value)
    return int(found) if found is not None else 0


def numbers(value: object) -> dict[str, float]:
    """The finite numbers of an object."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {text(name): found for name, each in pairs if (found := number(each)) is not None}


def text(value: object) -> str:
    """A text of one line without control characters: it goes to a terminal, and others wrote it."""
    plain = value if isinstance(value, str) else "" if value is None else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in plain)
