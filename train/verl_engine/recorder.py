"""What verl's trainer says, written down as the bundled trainer writes: events.jsonl and metrics.csv."""

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
from verl_engine.alarms import Watch, spread_by_extremes
from verl_engine.launch_context import Checkpoints
from verl_engine.metrics import (
    ANSI,
    SMOOTHED,
    Numbers,
    correct_cuts,
    given_numbers,
    header,
    look_numbers,
    parse_console,
    parse_file,
    parse_total,
    step_numbers,
)
from verl_engine.options import ANSWERS, FILE_LOGGER
from verl_engine.rollout_dumps import LATE, Generations, compare

KEPT_LINES = 60
SILENCE_ERRORS = 3  # the last is often what followed from the first
# Whose line it is, by Ray, a vLLM below it and torchrun; then the head of vLLM's log: "(vLLMHttpServer pid=9)
# (Worker pid=11) ERROR 11-22 05:03:18 [multiproc_executor.py:949] RuntimeError: ...".
PREFIX = re.compile(
    r"^(?:(?:\([^()]*pid=[^()]*\)|\[rank\d+\]:)\s*)*(?:(?:ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]*\]\s*)?"
)
# The line of a traceback that says what went wrong: "torch.OutOfMemoryError: CUDA out of memory."
CAUSE = re.compile(r"^(?:ray\.exceptions\.)?((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|NotImplemented)\b.*)$")


class Recorder:
    """Takes the trainer's lines; numbers come from verl's JSON file where it writes one, else from the console."""

    def __init__(
        self, run: RunDirectory, settings: Mapping[str, Any], version: Version, metrics: Path, *,
        steps: int, first_step: int, gpus: int, checkpoints: Checkpoints, held_out_rows: int,
        dumps: Path | None = None,
    ) -> None:  # fmt: skip
        """`dumps`: where verl writes each step's answers, if it does."""
        self.run, self.settings, self.steps, self.gpus = run, settings, steps, gpus
        self.task, self._version = settings["task"], version
        self.step = first_step
        self.looks: dict[str, Numbers] = {}
        self._file = metrics if version >= FILE_LOGGER else None
        self._offset = 0
        self._tail: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._checkpoints = checkpoints
        self._saved = self._checkpoints.newest() if first_step else None
        self._smooth: Numbers = {}
        self._began = time.monotonic()
        self._last: float | None = None
        self._heard = self._began  # the last line, or the last numbers
        self._silence_told = False
        self._watch = Watch(settings, held_out_rows)
        self._generations: Generations | None = None
        if run.is_writer:
            self._take_up(first_step, dumps)

    @property
    def stopped_by(self) -> str:
        """The alarm of `stop_on` that was raised."""
        return self._watch.stopped_by

    def _take_up(self, first_step: int, dumps: Path | None) -> None:
        """The run's tables, and what they tell of the steps up to here."""
        self._table = Table(self.run.path / "metrics.csv", header(self.task), first_step)
        rows = self._table.read()
        for row in rows:
            self._smooth = {
                name: float(row[f"{name}_smooth"]) for name in SMOOTHED[self.task] if row[f"{name}_smooth"]
            }
        looks = {event["step"]: event["metrics"] for event in self.run.read_events("eval")}
        self._watch.replay(rows, {step: look for step, look in looks.items() if step <= first_step})
        if dumps is not None:
            self._generations = Generations(
                self.run.path / "generations.csv", dumps, first_step=first_step,
                answers=self.settings["prompts_per_step"] * self.settings["num_generations"],
                own=dumps == self.run.path / ANSWERS, late=self._version >= LATE,
            )  # fmt: skip

    def take(self, line: str) -> None:
        """One line of the trainer's output."""
        self._hear()
        self.run.log(line.rstrip("\n"))
        self._tail.append(ANSI.sub("", line.rstrip()))
        self.steps = parse_total(line) or self.steps
        found = parse_console(line)
        if self._file is None:
            if found:
                self.numbers(*found)
        else:
            self.read_file()
        self.see_checkpoint()

    def wait(self) -> None:
        """No line came for a moment. Numbers may have come, and a long silence is told, once.

        verl waits without end, and without a word, for a vLLM that failed while it took new weights.
        """
        if self._file is not None:
            self.read_file()
        seconds, limit = time.monotonic() - self._heard, 60 * self.settings["quiet_minutes"]
        if limit and seconds >= limit and not self._silence_told:
            self._silence_told = True
            self.run.note(self._describe_silence(seconds))

    def _hear(self) -> None:
        self._heard, self._silence_told = time.monotonic(), False

    def finish(self) -> None:
        """The trainer ended: what it wrote last."""
        if self._file is not None:
            self.read_file()
        if self._generations is not None:
            self._generations.take_rest()
        self.see_checkpoint()

    def read_file(self) -> None:
        """New whole lines of verl's JSON file."""
        assert self._file is not None
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._offset)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except OSError:
            return
        self._offset += len(whole) + len(newline)
        for line in whole.decode(errors="replace").splitlines():
            if found := parse_file(line):
                self.numbers(*found)

    def numbers(self, step: int, numbers: Numbers) -> None:
        """One step's numbers, a look's among them or alone."""
        self._hear()
        if not self.run.is_writer:
            self.step = max(self.step, step)
            return
        if self.task != "sft":
            numbers = correct_cuts(numbers, self.settings["max_completion_length"])
        found = step_numbers(self.task, numbers, self.gpus)
        if found:
            now = time.monotonic()
            if found.get("seconds") is None:  # SFT's trainer does not say from 0.7.1 on: as we see its lines come
                found["seconds"] = now - self._last if self._last else None  # loading is no part of the first
                if found["seconds"] and found.get("tokens"):
                    found["tokens_per_second"] = found["tokens"] / found["seconds"]
            self._last = now
            self.step = step
            spread = self._spread(step)
            self._write(step, found | spread)
            given = (spread or spread_by_extremes(numbers)) | given_numbers(self.task, numbers)
            self._raise(self._watch.see(step, given))
        if look := look_numbers(numbers):
            when = "before" if step == 0 else "after" if step >= self.steps else "during"
            self.looks[when] = look
            self.run.write_event("eval", when=when, step=step, metrics=look)
            self._raise(self._watch.look(when, step, look))

    def _spread(self, step: int) -> Numbers:
        """How far the rewards of a step's answers lie apart; its answers are in generations.csv then."""
        if self._generations is None:
            return {}
        return compare(self._generations.take(step), grouped=self.task == "grpo")

    def _raise(self, alarms: list[Alarm]) -> None:
        for alarm in alarms:
            self.run.write_event("alarm", **alarm.as_record())
            self.run.log(f"alarm: {alarm.name}: {alarm.message}; {alarm.hint}")

    def _write(self, step: int, found: dict[str, float | None]) -> None:
        keep = self.settings["smoothing"]
        for name in SMOOTHED[self.task]:
            value = found.get(name)
            if value is not None:
                self._smooth[name] = keep * self._smooth.get(name, value) + (1 - keep) * value
        row = found | {f"{name}_smooth": value for name, value in self._smooth.items()}
        self._table.append([{"step": step, **row}])
        self.run.write_event("step", step=step, steps=self.steps, metrics=row)

    def see_checkpoint(self) -> None:
        """Tell of a checkpoint when verl has finished it."""
        newest = self._checkpoints.newest()
        if newest and newest != self._saved:
            self._saved = newest
            path = str(newest.relative_to(self.run.path))
            self.run.write_event("checkpoint", step=self._checkpoints.step(newest), path=path)

    def seconds(self) -> dict[str, float]:
        """Seconds since the trainer was started."""
        return {"train": round(time.monotonic() - self._began, 2)}

    def describe_end(self, status: int) -> str:
        """How the trainer ended: the last error that it named."""
        how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        return f"verl's trainer {how}: {self._last_errors()[-1][:500]}"

    def _describe_silence(self, seconds: float) -> str:
        """How long, what verl said last, and what to do."""
        errors = list(dict.fromkeys(self._last_errors()))[-SILENCE_ERRORS:]
        said = " | ".join(error[:300] for error in errors) or "nothing"
        last = self._checkpoints.newest()
        go_on = (
            f"--resume latest goes on from step {self._checkpoints.step(last)}" if last else "no checkpoint was saved"
        )
        return (
            f"neither a line nor numbers from verl for {seconds / 60:.3g} minutes, at step {self.step} of "
            f"{self.steps}; it said last: {said}; it may wait for ever for a process that failed: "
            f"tail -n {KEPT_LINES} {shlex.quote(str(self.run.path / 'train.log'))}; {way_out()} ends the run, {go_on}"
        )

    def _last_errors(self) -> list[str]:
        """The errors among the last lines, oldest first; without any, the last line."""
        plain = [PREFIX.sub("", line).strip() for line in self._tail]
        causes = [matched[1] for line in plain if (matched := CAUSE.match(line))]
        # torchrun ends with an error of its own, which says that a child failed.
        own = [cause for cause in causes if "ChildFailedError" not in cause]
        return own or causes or [next((line for line in reversed(plain) if line), "")]


def way_out() -> str:
    """What ends this run; nobody sits at the terminal of a batch job."""
    job = os.environ.get("SLURM_JOB_ID")
    return f"scancel {job}" if job else "Ctrl-C"
