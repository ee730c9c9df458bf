"""Records each training step: metrics, alarms, evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import importlib.metadata
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from run.alarms import Alarms, parse_row
from run.checkpoints import delete_old_checkpoints, mark_complete, record_compute_dtype
from run.directory import RunDirectory, Table
from run.interrupt import Interrupt
from run.ranks import Ranks
from run.timers import StepTimer
from settings import BadInput
from transformers import TrainerCallback

GIB = 2**30


class TrainingComplete(Exception):  # noqa: N818  (not an error)
    """The checkpoint is of the last step: only the evaluation and the saving remain."""


class Recorder(TrainerCallback, ABC):
    """Writes metrics.csv and events.jsonl of a run, evaluates and saves; a subclass has the trainer's metrics."""

    columns: Sequence[str] = ()  # of metrics.csv after the step
    smoothed: Sequence[str] = ()  # the columns that have a smoothed one

    def __init__(
        self,
        run: RunDirectory,
        task: Any,
        settings: dict[str, Any],
        *,
        ranks: Ranks,
        interrupt: Interrupt,
        evaluate: Callable[[str, int], dict[str, float]],
        first_step: int,
    ) -> None:
        self.run, self.task, self.settings = run, task, settings
        self.ranks, self.interrupt, self.evaluate = ranks, interrupt, evaluate
        self.timer = StepTimer()
        self.alarms = Alarms(settings, len(task.held_out))
        self.stopped_by = ""
        self.trainer: Any = None
        self.times: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.peak = 0
        self.logged = False  # whether the first step was
        if not ranks.is_main:
            return
        smooth = [f"{name}_smooth" for name in self.smoothed]
        self.metrics = Table(
            run.path / "metrics.csv", ["step", *self.columns, *smooth, *self.step_columns], first_step
        )
        self.smooth: dict[str, float] = {}
        for row in self.metrics.read():  # of a resumed run: state of the smoothed metrics and of the alarms
            self.smooth = {name: float(row[f"{name}_smooth"]) for name in self.smoothed if row[f"{name}_smooth"]}
            self.alarms.check_step(int(row["step"]), parse_row(row))

    @property
    @abstractmethod
    def step_columns(self) -> Sequence[str]:
        """The columns of metrics.csv after the smoothed ones."""

    @abstractmethod
    def step_metrics(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of a step from the trainer's log."""

    @abstractmethod
    def logged_names(self) -> Sequence[str]:
        """The names that the trainer must log: without them metrics and alarms would be empty without a word."""

    def end_step(self, interrupted: bool) -> bool:
        """Gather what the ranks recorded in a step; return whether any rank was interrupted."""
        return self.ranks.any(interrupted)

    def finish_step(self) -> None:
        """Write what was gathered."""

    def updates_left(self, step: int) -> int:  # noqa: ARG002  (a subclass reads it)
        """The later steps of the run that use the data of this one again."""
        return 0

    def on_train_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """End here with a checkpoint of the last step: the training loop would run one more step.

        Note when a killed run would lose its steps; by epochs the number of steps is known only here.
        """
        every, done, steps = self.settings["save_steps"], state.global_step, state.max_steps
        if done >= steps:
            raise TrainingComplete
        state.save_steps = every or state.save_steps  # transformers reads that of the checkpoint
        if self.ranks.is_main and (not every or (done // every + 1) * every >= steps):
            lost = f"resumes from step {done}" if done else "starts again from the beginning"
            self.run.note(f"save_steps = {every} of {steps} steps: no checkpoint before the end; a killed run {lost}")

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the timer."""
        self.timer.start_step()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the timer, gather, and save and stop after an interrupt."""
        self.times = self.timer.end_step()
        if self.end_step(
            self.interrupt.requested_at is not None
        ):  # ranks that stop at different steps would deadlock
            self.interrupt.requested_at = self.interrupt.requested_at or time.monotonic()
            self._stop(state, control)
        self.finish_step()

    def _stop(self, state: Any, control: Any) -> None:
        """Save and stop after the last update with the present completions, which no checkpoint contains."""
        if not self.updates_left(state.global_step):
            control.should_save = control.should_training_stop = True

    def on_log(self, _args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write the metrics of a step, check the alarms, and evaluate when it is due."""
        if not logs or "loss" not in logs:  # the summary at the end of the training has no loss
            return
        step, every = state.global_step, self.settings["eval_steps"]
        if not self.logged:
            self.logged = True
            self._check_logged(logs, step)
        for name, seconds in self.times.items():
            self.totals[name] = self.totals.get(name, 0.0) + seconds
        metrics = self.step_metrics(logs)
        if self.ranks.is_main:
            self._write_metrics(step, state.max_steps, metrics)
            self._raise_alarms(self.alarms.check_step(step, metrics))
        if every and step % every == 0 and step < state.max_steps:
            self.record_evaluation("during", step, self.evaluate("during", step))
        if self.settings["stop_on"] and self.ranks.any(bool(self.stopped_by)):
            self._stop(state, control)

    def _check_logged(self, logs: Collection[str], step: int) -> None:
        missing = [name for name in self.logged_names() if name not in logs]
        if missing:
            raise BadInput(
                f"TRL {importlib.metadata.version('trl')} logs no {', '.join(missing)} at step {step}; it logs "
                f"{', '.join(sorted(logs))}",
                expected="the metrics of TRL 0.22.2 to 1.16, which the alarms read",
                hint="envdoctor profiles",
            )

    def record_evaluation(self, when: str, step: int, metrics: dict[str, float]) -> None:
        """Check the alarms for an evaluation, and report it to the trackers."""
        if self.ranks.is_main:
            self._raise_alarms(self.alarms.check_evaluation(when, step, metrics))
        if self.settings["report_to"]:
            self.trainer.log({f"held_out/{name}": value for name, value in metrics.items()})

    def memory(self) -> float | None:
        """The peak of torch's allocated memory on this GPU since the last step, in GiB."""
        if not torch.cuda.is_available() or self.trainer.args.use_cpu:
            return None
        peak = torch.cuda.max_memory_allocated()
        self.peak = max(self.peak, peak)
        torch.cuda.reset_peak_memory_stats()
        return peak / GIB

    def _write_metrics(self, step: int, steps: int, metrics: dict[str, Any]) -> None:
        keep = self.settings["smoothing"]
        for name in self.smoothed:
            value = metrics[name]
            self.smooth[name] = keep * self.smooth.get(name, value) + (1 - keep) * value
        metrics |= {f"{name}_smooth": value for name, value in self.smooth.items()}
        self.metrics.append([{"step": step, **metrics}])
        self.run.write_event("step", step=step, steps=steps, metrics=metrics)
        if step % 10 == 0:
            shown = ", ".join(f"{name}_smooth {value:.3f}" for name, value in self.smooth.items())
            self.run.log(f"step {step}: {shown}")

    def _raise_alarms(self, alarms: Sequence[Any]) -> None:
        for alarm in alarms:
            self.run.write_event("alarm", **alarm.as_record())
            self.run.log(f"alarm: {alarm.name}: {alarm.message}; {alarm.hint}")
            if alarm.name in self.settings["stop_on"]:
                self.stopped_by = alarm.name

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Mark the new checkpoint complete, then delete older ones."""
        self.ranks.barrier()  # each rank writes a file of its own
        path = self.run.checkpoints / f"checkpoint-{state.global_step}"
        if not self.ranks.is_main:
            return
        record_compute_dtype(path, self.trainer.args)
        mark_complete(path)
        delete_old_checkpoints(self.run.checkpoints, self.settings["save_total_limit"])
        self.run.write_event("checkpoint", step=state.global_step, path=str(path.relative_to(self.run.path)))

    def save_after_error(self) -> None:
        """Save a checkpoint of the last complete step after an exception (a reward function, out of memory)."""
        with contextlib.suppress(OSError):  # the first error is the one to report
            self.finish_step()
        state = self.trainer.state
        path = self.run.checkpoints / f"checkpoint-{state.global_step}"
        # With one rank only: other ranks may never reach the barriers of a checkpoint.
        if self.ranks.world_size > 1 or not state.global_step or path.exists():
            return
        try:
            self.trainer._save_checkpoint(self.trainer.model, trial=None)  # noqa: SLF001  no public method saves alone
            self.on_save(None, state, None)
        except Exception as error:  # here too
            self.run.note(f"step {state.global_step} could not be saved: {type(error).__name__}: {error}")
        else:
            left = self.updates_left(state.global_step)
            lost = (
                f", which samples other completions for the next {left} updates with the same completions"
                if left
                else ""
            )
            self.run.note(f"saved the state after step {state.global_step}; continue with --resume latest{lost}")

    def time_shares(self) -> dict[str, float]:
        """The share of each part in the time of all steps."""
        total = self.totals.get("seconds", 0.0)
        parts = {name.removesuffix("_seconds"): value for name, value in self.totals.items() if name != "seconds"}
        return {name: round(value / total, 4) for name, value in parts.items()} if total else {}
