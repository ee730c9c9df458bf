"""Record the output of verl's trainer in the files of a run: events.jsonl, metrics.csv and generations.csv."""

from __future__ import annotations

import collections
import os
import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version
from run.alarms import Alarm
from run.directory import RunDirectory, Table
from verl_engine.alarms import VerlAlarms, reward_std_bound
from verl_engine.checkpoints import Checkpoints, step_of
from verl_engine.metrics import (
    ANSI,
    SMOOTHED,
    Metrics,
    correct_clip_ratio,
    evaluation_metrics,
    header,
    parse_console,
    parse_file,
    parse_total,
    rename_metrics,
    step_metrics,
)
from verl_engine.options import FILE_LOGGER, ROLLOUT_FOLDER
from verl_engine.rollout_dumps import THREADED_DUMP, RolloutDumps, reward_statistics

TAIL_LINES = 60
ERRORS_IN_NOTE = 3  # the last error is often a consequence of an earlier one
# Prefixes by Ray, vLLM's workers and torchrun, then the header of vLLM's log: "(vLLMHttpServer pid=9)
# (Worker pid=11) ERROR 11-22 05:03:18 [multiproc_executor.py:949] RuntimeError: ...".
LOG_PREFIX = re.compile(
    r"^(?:(?:\([^()]*pid=[^()]*\)|\[rank\d+\]:)\s*)*(?:(?:ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]*\]\s*)?"
)
# The last line of a traceback: "torch.OutOfMemoryError: CUDA out of memory."
EXCEPTION = re.compile(
    r"^(?:ray\.exceptions\.)?((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|NotImplemented)\b.*)$"
)  # fmt: skip


class Recorder:
    """Reads the trainer's lines. Metrics come from verl's JSON file if it writes one, else from the console."""

    def __init__(
        self, run: RunDirectory, settings: Mapping[str, Any], version: Version, metrics: Path, *,
        steps: int, first_step: int, gpus: int, checkpoints: Checkpoints, held_out_rows: int,
        rollout_folder: Path | None = None,
    ) -> None:  # fmt: skip
        """`rollout_folder` is the directory to which verl dumps each step's completions, if it does."""
        self.run, self.settings, self.steps, self.gpus = run, settings, steps, gpus
        self.task, self._version = settings["task"], version
        self.step = first_step
        self.evaluations: dict[str, Metrics] = {}
        self._file = metrics if version >= FILE_LOGGER else None
        self._offset = 0
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        self._checkpoints = checkpoints
        self._last_checkpoint = self._checkpoints.latest() if first_step else None
        self._smoothed: Metrics = {}
        self._start = time.monotonic()
        self._last_step_time: float | None = None
        self._last_output = self._start  # time of the last line or metrics
        self._silence_reported = False
        self._alarms = VerlAlarms(settings, held_out_rows)
        self._dumps: RolloutDumps | None = None
        if run.is_writer:
            self._open_tables(first_step, rollout_folder)

    @property
    def stopped_by(self) -> str:
        """Return the alarm of `stop_on` that was raised."""
        return self._alarms.stopped_by

    def _open_tables(self, first_step: int, rollout_folder: Path | None) -> None:
        """Open the run's tables, and restore smoothing and alarms from the steps up to `first_step`."""
        self._table = Table(self.run.path / "metrics.csv", header(self.task), first_step)
        rows = self._table.read()
        for row in rows:
            self._smoothed = {
                name: float(row[f"{name}_smooth"]) for name in SMOOTHED[self.task] if row[f"{name}_smooth"]
            }
        evaluations = {event["step"]: event["metrics"] for event in self.run.read_events("eval")}
        self._alarms.replay(rows, {step: metrics for step, metrics in evaluations.items() if step <= first_step})
        if rollout_folder is not None:
            self._dumps = RolloutDumps(
                self.run.path / "generations.csv", rollout_folder, first_step=first_step,
                completions=self.settings["prompts_per_step"] * self.settings["num_generations"],
                delete=rollout_folder == self.run.path / ROLLOUT_FOLDER, threaded=self._version >= THREADED_DUMP,
            )  # fmt: skip

    def read_line(self, line: str) -> None:
        """Record one line of the trainer's output."""
        self._reset_silence()
        self.run.log(line.rstrip("\n"))
        self._tail.append(ANSI.sub("", line.rstrip()))
        self.steps = parse_total(line) or self.steps
        if self._file is not None:
            self.read_file()
        elif parsed := parse_console(line):
            self.record(*parsed)
        self.check_checkpoint()

    def on_wait(self) -> None:
        """Handle a moment without a line: read new metrics, and note a long silence once.

        verl waits without a message or a limit for a vLLM that failed during a weight sync.
        """
        if self._file is not None:
            self.read_file()
        seconds, limit = time.monotonic() - self._last_output, 60 * self.settings["quiet_minutes"]
        if limit and seconds >= limit and not self._silence_reported:
            self._silence_reported = True
            self.run.note(self._describe_silence(seconds))

    def _reset_silence(self) -> None:
        self._last_output, self._silence_reported = time.monotonic(), False

    def finish(self) -> None:
        """Record what the trainer wrote before its end."""
        if self._file is not None:
            self.read_file()
        if self._dumps is not None:
            self._dumps.read_remaining()
        self.check_checkpoint()

    def read_file(self) -> None:
        """Record the new complete lines of verl's JSON file."""
        assert self._file is not None
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._offset)
                lines, newline, _ = stream.read().rpartition(b"\n")
        except OSError:
            return
        self._offset += len(lines) + len(newline)
        for line in lines.decode(errors="replace").splitlines():
            if parsed := parse_file(line):
                self.record(*parsed)

    def record(self, step: int, metrics: Metrics) -> None:
        """Record the metrics of a step, of an evaluation, or of both."""
        self._reset_silence()
        if not self.run.is_writer:
            self.step = max(self.step, step)
            return
        if self.task != "sft":
            metrics = correct_clip_ratio(metrics, self.settings["max_completion_length"])
        row = step_metrics(self.task, metrics, self.gpus)
        if row:
            self._record_step(step, row, metrics)
        if evaluation := evaluation_metrics(metrics):
            when = "before" if step == 0 else "after" if step >= self.steps else "during"
            self.evaluations[when] = evaluation
            self.run.write_event("eval", when=when, step=step, metrics=evaluation)
            self._report(self._alarms.check_evaluation(when, step, evaluation))

    def _record_step(self, step: int, row: dict[str, float | None], metrics: Metrics) -> None:
        now = time.monotonic()
        if row.get("seconds") is None:  # SFT's trainer logs no time from 0.7.1 on: use the time between metrics
            # The first step would include loading.
            row["seconds"] = now - self._last_step_time if self._last_step_time else None
            if row["seconds"] and row.get("tokens"):
                row["tokens_per_second"] = row["tokens"] / row["seconds"]
        self._last_step_time = now
        self.step = step
        statistics = self._reward_statistics(step)
        self._write_step(step, row | statistics)
        alarm_metrics = (statistics or reward_std_bound(metrics)) | rename_metrics(self.task, metrics)
        self._report(self._alarms.check_step(step, alarm_metrics))

    def _reward_statistics(self, step: int) -> Metrics:
        """Move a step's completions to generations.csv and return the statistics of their rewards."""
        if self._dumps is None:
            return {}
        return reward_statistics(self._dumps.read_step(step), grouped=self.task == "grpo")

    def _report(self, alarms: list[Alarm]) -> None:
        for alarm in alarms:
            self.run.write_event("alarm", **alarm.as_record())
            self.run.log(f"alarm: {alarm.name}: {alarm.message}; {alarm.hint}")

    def _write_step(self, step: int, row: dict[str, float | None]) -> None:
        weight = self.settings["smoothing"]
        for name in SMOOTHED[self.task]:
            value = row.get(name)
            if value is not None:
                self._smoothed[name] = weight * self._smoothed.get(name, value) + (1 - weight) * value
        row = row | {f"{name}_smooth": value for name, value in self._smoothed.items()}
        self._table.append([{"step": step, **row}])
        self.run.write_event("step", step=step, steps=self.steps, metrics=row)

    def check_checkpoint(self) -> None:
        """Record a new checkpoint when verl has completed it."""
        latest = self._checkpoints.latest()
        if latest and latest != self._last_checkpoint:
            self._last_checkpoint = latest
            path = str(latest.relative_to(self.run.path))
            self.run.write_event("checkpoint", step=step_of(latest), path=path)

    def seconds(self) -> dict[str, float]:
        """Return the seconds since the trainer was started."""
        return {"train": round(time.monotonic() - self._start, 2)}

    def describe_end(self, status: int) -> str:
        """Return how the trainer ended, with its last error."""
        end = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        return f"verl's trainer {end}: {self._last_errors()[-1][:500]}"

    def _describe_silence(self, seconds: float) -> str:
        errors = list(dict.fromkeys(self._last_errors()))[-ERRORS_IN_NOTE:]
        messages = " | ".join(error[:300] for error in errors) or "none"
        latest = self._checkpoints.latest()
        resume = f"--resume latest continues from step {step_of(latest)}" if latest else "no checkpoint was saved"
        log = shlex.quote(str(self.run.path / "train.log"))
        return (
            f"no output and no metrics from verl for {seconds / 60:.3g} minutes, at step {self.step} of "
            f"{self.steps}; last message: {messages}; verl may be waiting for a failed process: "
            f"tail -n {TAIL_LINES} {log}; {stop_command()} ends the run, {resume}"
        )

    def _last_errors(self) -> list[str]:
        """Return the errors among the last lines, oldest first, or the last line if there is none."""
        lines = [LOG_PREFIX.sub("", line).strip() for line in self._tail]
        errors = [match[1] for line in lines if (match := EXCEPTION.match(line))]
        # torchrun ends with its own ChildFailedError, which only reports that a process failed.
        causes = [error for error in errors if "ChildFailedError" not in error]
        return causes or errors or [next((line for line in reversed(lines) if line), "")]


def stop_command() -> str:
    """Return the command or key that ends this run."""
    job = os.environ.get("SLURM_JOB_ID")
    return f"scancel {job}" if job else "Ctrl-C"
