"""Live display of a run on stderr: a few updated lines on a terminal, lines at intervals in a pipe or log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from envdoctor.output import run_lines
from envdoctor.output.console import err
from envdoctor.output.text import Text
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
    from envdoctor.commands.watch import WatchResult

PLAIN_STEPS, PLAIN_SECONDS = 10, 30.0  # between two lines in a pipe, whichever comes first
REFRESH_SECONDS = 0.1  # a tiny model makes many steps per second


class LiveRun:
    """Reduces events to the run's state and shows it."""

    def __init__(self) -> None:
        self.reducer = RunReducer()
        self.refreshed = 0.0
        self.printed_step, self.printed_at = 0, time.monotonic()
        self.header_printed = self.silent = self.watching = False

    def event(self, event: Event) -> None:
        """Show one event of the trainer."""
        self.reducer.apply(event)
        for line in event_lines(event):
            err().print(line)
        shown = ("step", "warmup", "eval", "phase") if err().is_live else ("step", "warmup")
        if event.get("event") in shown and not self.watching:
            self._show(self.reducer.state())

    def watched(self, watched: WatchResult) -> None:
        """Show the state that `watch` has read, after the new events."""
        self.watching = True
        if not self.header_printed:
            self.header_printed = True
            err().print(Text.assemble(("• ", "info"), f"{watched.recipe} in {watched.directory}"))
            err().print(*map(note_line, watched.state.notes), *map(alarm_line, watched.state.alarms))
        if (watched.silent is not None) != self.silent:
            self.silent = watched.silent is not None
            if self.silent:
                err().print(silence_line(watched))
        if err().is_live:
            err().update(*run_lines.lines(watched.state, err().width, watched.gpus), trainer_line(watched))
        else:
            self._plain(watched.state)

    def _show(self, state: RunState) -> None:
        now = time.monotonic()
        if not err().is_live:
            self._plain(state)
        elif now - self.refreshed >= REFRESH_SECONDS:
            self.refreshed = now
            err().update(*run_lines.lines(state, err().width))

    def _plain(self, state: RunState) -> None:
        """Print the first step of a phase, then one after PLAIN_STEPS or PLAIN_SECONDS."""
        now = time.monotonic()
        if state.step < self.printed_step:
            self.printed_step = 0
        due = self.printed_step == 0 or state.step - self.printed_step >= PLAIN_STEPS
        if state.step != self.printed_step and (due or now - self.printed_at >= PLAIN_SECONDS):
            self.printed_step, self.printed_at = state.step, now
            err().print(Text(run_lines.plain(state), wrap=False))


def event_lines(event: Event) -> list[Text]:
    """Return the permanent lines of an event."""
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
    return _setup_lines(kind, event)


def _setup_lines(kind: object, event: Event) -> list[Text]:
    """Return the lines of LoRA, skipped checkpoints and interrupts."""
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
    """Format a note."""
    return Text.assemble(("  i ", "info"), message)


def alarm_line(alarm: Alarm) -> Text:
    """Format an alarm: `! no-signal at step 12: ...` with its hint."""
    head = Text.assemble(("  ! ", "warning"), (alarm.name, "warning"), f" at step {alarm.step}: {alarm.message}")
    return head.append(f"\n    try: {alarm.hint}", style="info") if alarm.hint else head


def silence_line(watched: WatchResult) -> Text:
    """Format the time since the last event, and the step time."""
    step = f"; a step takes {watched.state.step_seconds:.3g} s" if watched.state.step_seconds is not None else ""
    ago = run_lines.span(watched.silent or 0.0)
    return Text.assemble(("  ! ", "warning"), f"no event for {ago}{step}, in phase {watched.state.phase or 'none'}")


def trainer_line(watched: WatchResult) -> Text:
    """Format the status of the trainer's process."""
    process = f" (process {watched.process})" if watched.process else ""
    descriptions = {
        "running": f"the trainer runs{process}",
        "gone": "the trainer has ended",
        "unknown": f"the status of the trainer{process} is not visible from this machine",
        "not started": "the trainer has not started yet",
    }
    if watched.trainer == "running" and watched.state.ending:
        return Text(f"  the trainer is ending{process}", style="dim")
    return Text(f"  {descriptions[watched.trainer]}", style="dim")
