"""What a run leaves behind, written as it goes: events.jsonl, metrics.csv, generations.csv. Standard library only."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from run.checkpoints import archive_later_files, checkpoint_step, choose_checkpoint
from settings import BadInput

csv.field_size_limit(sys.maxsize)  # an answer may be longer than the 128 KiB that csv takes by itself


class RunDirectory:
    """The files of one run. A run killed at any moment can be read, and continued from its newest checkpoint."""

    def __init__(self, path: Path, *, is_writer: bool = True) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.is_writer = is_writer  # one process of a run does
        self._events_checked = False

    def read(self) -> dict[str, Any]:
        """run.json, which the tool wrote: recipe, settings, and what verify passed (`proven`)."""
        file = self.path / "run.json"
        expected = '{"schema": 1, "recipe": "sort", "settings": {...}}'
        hint = "start the run with: envdoctor train"
        try:
            run = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}", expected=expected, hint=hint) from None
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{file} is not JSON: {error}", expected=expected, hint=hint) from None
        if not isinstance(run, dict) or run.get("schema") != 1 or not isinstance(run.get("recipe"), str):
            seen = (
                {key: run.get(key) for key in ("schema", "recipe")} if isinstance(run, dict) else type(run).__name__
            )
            raise BadInput(f"{file} holds {seen}", expected=expected, hint=hint)
        return run

    def lock(self) -> None:
        """Keep this run for this process: two trainers would write into each other's tables.

        The lock is the file's, not its content's: it goes when the process does, however it ends.
        """
        if not self.is_writer:
            return
        try:
            self._lock = (self.path / ".lock").open("a+", encoding="utf-8")
        except OSError as error:
            self.is_writer = False
            raise BadInput(
                f"the run's folder {self.path} cannot be written to: {error.strerror}",
                expected="a folder with run.json, that is yours to write",
                hint="envdoctor train --run FOLDER",
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.is_writer = False  # what happens here is the other one's to tell
            self._lock.seek(0)
            raise BadInput(
                f"{self.path} is being trained by process {self._lock.read().strip() or 'unknown'}",
                expected="one trainer for a run",
                hint="wait for it to end, or stop that process",
            ) from None
        with contextlib.suppress(OSError):  # the number is for people: on a full disk the lock holds without
            os.ftruncate(self._lock.fileno(), 0)
            os.write(self._lock.fileno(), str(os.getpid()).encode())

    def unlock(self) -> None:
        """Let go of the run."""
        self._lock.close()

    def prepare_resume(self, resume: str | None) -> Path | None:
        """The checkpoint to go on from, none for a fresh start.

        Newer checkpoints that are not whole are told and removed: what is trained again would be written into them.
        """
        if not self.is_writer:
            return choose_checkpoint(self.checkpoints, resume)[0] if resume else None
        if not resume:
            self.check_unused()
            return None
        try:
            checkpoint, skipped = choose_checkpoint(self.checkpoints, resume)
        except BadInput:
            self.is_writer = resume == "latest"  # a slip in a name is nothing that happened to the run
            raise
        for path, defect in skipped:
            self.write_event("checkpoint_skipped", path=str(path.relative_to(self.path)), reason=defect)
            shutil.rmtree(path)
        return checkpoint

    def archive_files_after(self, checkpoint: Path) -> None:
        """The run's course is now the one that led to this checkpoint; what came later is put aside."""
        place = (
            archive_later_files(self.path, self.checkpoints, checkpoint_step(checkpoint)) if self.is_writer else None
        )
        if place:
            held = ", ".join(sorted(path.name for path in place.iterdir()))
            self.note(f"on from step {checkpoint_step(checkpoint)}: {held} of the course until now lie in {place}")

    def check_unused(self) -> None:
        """A fresh start must not overwrite a run."""
        used = [name for name in ("result.json", "metrics.csv") if (self.path / name).exists()]
        if used:
            raise BadInput(
                f"{self.path} already holds a run ({', '.join(used)})",
                expected="a directory that holds run.json alone, or --resume",
                hint="continue it with --resume latest, or start in a new directory",
            )

    def write_event(self, event: str, **fields: Any) -> None:
        """Append one line to events.jsonl, at once."""
        if not self.is_writer:
            return
        file = self.path / "events.jsonl"
        if not self._events_checked:
            _truncate_partial_line(file)
            self._events_checked = True
        record = {"t": round(time.time(), 3), "event": event, **fields}
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(replace_nonfinite(record), ensure_ascii=False) + "\n")

    def start_phase(self, name: str, detail: str = "") -> None:
        """A phase begins."""
        self.write_event("phase", name=name, detail=detail)
        self.log(f"{name}: {detail}" if detail else name)

    def note(self, message: str) -> None:
        """Something to know about this run: what stands in for what was asked."""
        self.write_event("note", message=message)
        self.log(f"note: {message}")

    def log(self, line: str) -> None:
        """A line for who reads along."""
        if self.is_writer:
            print(line, flush=True)

    def read_events(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Events of a kind whose fields have these values, oldest first."""
        file = self.path / "events.jsonl"
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        events = [parsed for line in lines if (parsed := _parse_json(line)) and parsed.get("event") == kind]
        return [event for event in events if all(event.get(key) == value for key, value in fields.items())]

    def read_evaluations(self) -> list[dict[str, Any]]:
        """The held-out looks of the run's course, oldest first: one that goes back forgets what came later.

        Sample event: {"t": 1.0, "event": "eval", "when": "during", "step": 50, "metrics": {"greedy_reward": 0.6}}
        """
        looks: dict[int, dict[str, Any]] = {}
        for event in self.read_events("eval"):
            step = event.get("step")
            if isinstance(step, int) and isinstance(event.get("metrics"), dict):
                looks = {at: look for at, look in looks.items() if at < step} | {step: event}
        return list(looks.values())

    def record_dataset(self, train: Sequence[Any], held_out: Sequence[Any]) -> None:
        """Keep what a run begins with, and note where it goes on with other rows: its numbers do not compare."""
        if not self.is_writer:
            return
        digest = hashlib.sha256()
        for row in (*train, None, *held_out):
            digest.update(json.dumps(row, default=lambda value: type(value).__name__).encode())
        rows = {"train": len(train), "held_out": len(held_out), "sha256": digest.hexdigest()}
        first = next(iter(self.read_events("rows")), None)
        if first is None:
            self.write_event("rows", **rows)
        elif first.get("sha256") != rows["sha256"]:
            self.note(
                f"the rows are not those that the run began with: {rows['train']} to train on and {rows['held_out']} "
                f"held out, where there were {first.get('train')} and {first.get('held_out')}; the numbers before "
                "belong to those"
            )

    def read_baseline_evaluation(self) -> dict[str, float]:
        """The held-out numbers before GRPO, from the run's first start."""
        looks = self.read_events("eval", when="before")
        if not looks:
            raise BadInput(
                f"{self.path / 'events.jsonl'} does not tell the held-out numbers before GRPO",
                expected="the events of the run that wrote the checkpoint",
                hint="start the run again in a new directory, without --resume",
            )
        return dict(looks[-1]["metrics"])

    def is_finished(self, checkpoint: Path, steps: int) -> bool:
        """Whether nothing is left to do after a checkpoint, which is told. `steps`: the run's, 0 by epochs."""
        step = checkpoint_step(checkpoint)
        if steps and step > steps:
            raise BadInput(f"{checkpoint} is past steps = {steps}", expected="an earlier one", hint="--resume latest")
        end = self.read_final_result()
        over = end.get("status") == "done" and end.get("steps") == step == (steps or step)
        if over:
            self.note(f"nothing is left to do: step {step} was the last one, and result.json is written")
        return over

    def read_final_result(self) -> dict[str, Any]:
        """The result of a run that came to its very end: the event `done`, written last, tells it too; else empty."""
        try:
            result = json.loads((self.path / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        done = self.read_events("done")
        return result if done and done[-1].get("result") == result else {}

    def write_result(self, result: dict[str, Any]) -> None:
        """Write result.json whole or not at all."""
        if not self.is_writer:
            return
        temporary = self.path / "result.json.part"
        temporary.write_text(
            json.dumps(replace_nonfinite(result), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        temporary.replace(self.path / "result.json")


class Table:
    """A CSV file with a fixed header that grows by rows; on resume the rows after `keep_up_to` go."""

    def __init__(self, path: Path, header: list[str], keep_up_to: int = 0) -> None:
        self.path, self.header = path, header
        path.touch()
        temporary = path.with_suffix(".csv.part")
        with (
            temporary.open("w", encoding="utf-8", newline="") as new,
            path.open(encoding="utf-8", errors="replace", newline="") as old,  # a kill may have cut a letter in two
        ):
            table = csv.writer(new)
            table.writerow(header)
            table.writerows(parse_rows(old, header, keep_up_to))
        temporary.replace(path)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write rows, at once; a missing value is an empty cell."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([format_cell(row.get(key)) for key in self.header] for row in rows)

    def read(self) -> list[dict[str, str]]:
        """Every row, by column."""
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def parse_rows(lines: Iterable[str], header: list[str], keep_up_to: int) -> Iterator[list[str]]:
    r"""Rows whose step is at most `keep_up_to`, in the columns of `header`; a half-written row is dropped.

    Sample, keep_up_to=2: "step,reward\r\n1,0.5\r\n2,0.25\r\n3,0.7\r\n4,0." -> [["1", "0.5"], ["2", "0.25"]]
    """
    rows = csv.reader(lines)
    columns = next(rows, [])
    for row in rows:
        if len(row) == len(columns) and row[0].isdecimal() and int(row[0]) <= keep_up_to:
            named = dict(zip(columns, row, strict=True))  # another version may have had other columns
            yield [named.get(name, "") for name in header]


def format_cell(value: Any) -> str:
    """A number with the digits that matter, anything else as text."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def replace_nonfinite(value: Any) -> Any:
    """JSON has no nan and no infinity: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    return [replace_nonfinite(item) for item in value] if isinstance(value, list) else value


def _truncate_partial_line(file: Path) -> None:
    """A kill in the middle of a write leaves a line without its end."""
    if file.exists() and not (content := file.read_bytes()).endswith(b"\n"):
        file.write_bytes(content[: content.rfind(b"\n") + 1])


def _parse_json(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
