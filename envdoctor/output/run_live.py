"""A run on stderr while it goes on: a few changing lines on a terminal, a line now and then in a pipe or a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from envdoctor.output import run_lines
from envdoctor.training.runs.state import (
    Alarm,
    Evaluation,
    Event,
    RunReducer,
    RunState,
    finite_number,
    parse_alarm,
    parse_evaluation,
    printable_line,
    step_number,
)

if TYPE_CHECKING:
    from envdoctor.commands.watch import Watched

PLAIN_STEPS, PLAIN_SECONDS = 10, 30.0  # in a pipe, a line after so many steps or seconds, whichever comes first
REFRESH_SECONDS = 0.1  # a tiny model makes more steps a second than anyone reads


class LiveRun:
    """Folds events into the run's state and shows it."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self.console, self.live = console, live
        self.reducer = RunReducer()
        self.refreshed = 0.0
        self.said_step, self.said_at = 0, time.monotonic()
        self.greeted = self.silent = self.watching = False

    def event(self, event: Event) -> None:
        """One event of the trainer."""
        self.reducer.apply(event)
        for line in told(event):
            self.console.print(line, soft_wrap=self.live is None)
        shown = ("step", "warmup") if self.live is None else ("step", "warmup", "eval", "phase")
        if event.get("event") in shown and not self.watching:
            self._show(self.reducer.state())

    def watched(self, watched: Watched) -> None:
        """A look from outside, after its new events."""
        self.watching = True
        if not self.greeted:
            self.greeted = True
            self.console.print(Text.assemble(("• ", "info"), f"{watched.recipe} in {watched.directory}"))
            for note in watched.state.notes:
                self.console.print(note_line(note), soft_wrap=self.live is None)
            for alarm in watched.state.alarms:
                self.console.print(alarm_line(alarm), soft_wrap=self.live is None)
        if (watched.silent is not None) != self.silent:
            self.silent = watched.silent is not None
            if self.silent:
                self.console.print(silence_line(watched))
        if self.live:
            lines = run_lines.lines(watched.state, self.console.width, watched.gpus)
            self.live.update(Group(*lines, trainer_line(watched)), refresh=True)
        else:
            self._plain(watched.state)

    def _show(self, state: RunState) -> None:
        now = time.monotonic()
        if self.live is None:
            self._plain(state)
        elif now - self.refreshed >= REFRESH_SECONDS:
            self.refreshed = now
            self.live.update(Group(*run_lines.lines(state, self.console.width)), refresh=True)

    def _plain(self, state: RunState) -> None:
        """The first step, then one after PLAIN_STEPS or PLAIN_SECONDS; a phase that counts anew begins anew."""
        now = time.monotonic()
        if state.step < self.said_step:
            self.said_step = 0
        due = self.said_step == 0 or state.step - self.said_step >= PLAIN_STEPS
        if state.step != self.said_step and (due or now - self.said_at >= PLAIN_SECONDS):
            self.said_step, self.said_at = state.step, now
            self.console.print(Text(run_lines.plain(state)), soft_wrap=True)


def told(event: Event) -> list[Text]:
    """The lines of an event that stay."""
    kind, message = event.get("event"), printable_line(event.get("message"))
    if kind == "phase":
        return [
            Text.assemble(
                ("• ", "info"), f"{printable_line(event.get('name'))} ", (printable_line(event.get("detail")), "dim")
            )
        ]
    if kind == "eval":
        return [evaluation_line(parse_evaluation(event))]
    if kind == "alarm":
        return [alarm_line(parse_alarm(event))]
    if kind == "note":
        return [note_line(message)]
    if kind == "error":
        return [Text(f"  {message}", style="error")]
    return _told_of_setup(kind, event)


def _told_of_setup(kind: object, event: Event) -> list[Text]:
    """What is trained, and what went on around the steps."""
    if kind == "lora":
        trainable, total = finite_number(event.get("trainable")) or 0, finite_number(event.get("total")) or 0
        share = f" ({100 * trainable / total:.3g} %)" if total else ""
        return [Text(f"  LoRA: {trainable:,.0f} of {total:,.0f} parameters are trained{share}")]
    if kind == "checkpoint_skipped":
        path, reason = printable_line(event.get("path")), printable_line(event.get("reason"))
        return [Text.assemble(("  ! ", "warning"), f"{path} is skipped: {reason}")]
    if kind == "interrupted":
        step = event.get("step")
        after = f" after step {step_number(step)}" if step is not None else ""
        return [Text.assemble(("  ! ", "warning"), f"interrupted{after}")]
    return []


def evaluation_line(evaluation: Evaluation) -> Text:
    """The held-out metrics of a evaluation."""
    return Text(f"  held-out {evaluation.when} (step {evaluation.step}): {run_lines.evaluation_metrics(evaluation)}")


def note_line(message: str) -> Text:
    """What a run noted."""
    return Text.assemble(("  i ", "info"), message)


def alarm_line(alarm: Alarm) -> Text:
    """`! no-signal at step 12: ...` with what to try."""
    head = Text.assemble(("  ! ", "warning"), (alarm.name, "warning"), f" at step {alarm.step}: {alarm.message}")
    return head.append(f"\n    try: {alarm.hint}", style="info") if alarm.hint else head


def silence_line(watched: Watched) -> Text:
    """How long nothing has come, and how long a step takes."""
    step = f"; a step takes {watched.state.step_seconds:.3g} s" if watched.state.step_seconds is not None else ""
    ago = run_lines.span(watched.silent or 0.0)
    return Text.assemble(("  ! ", "warning"), f"no event for {ago}{step}, in phase {watched.state.phase or 'none'}")


def trainer_line(watched: Watched) -> Text:
    """Whether the trainer's process lives."""
    process = f" (process {watched.process})" if watched.process else ""
    words = {
        "running": f"the trainer runs{process}",
        "gone": "the trainer has ended",
        "unknown": f"whether the trainer{process} runs cannot be seen from this machine",
        "not started": "the trainer has not started yet",
    }
    if watched.trainer == "running" and watched.state.ending:
        return Text(f"  the trainer is on its way out{process}", style="dim")
    return Text(f"  {words[watched.trainer]}", style="dim")
