"""The files of a run: run.json, events.jsonl, metrics.csv, generations.csv, result.json. Standard library only."""

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
from run.redaction import data_without_secrets
from settings import BadInput

csv.field_size_limit(sys.maxsize)  # a completion may be longer than csv's default of 128 KiB


class RunDirectory:
    """The files of one run. A run killed at any moment can be read, and resumed from its newest checkpoint."""

    def __init__(self, path: Path, *, is_writer: bool = True) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.is_writer = is_writer  # rank 0 alone writes
        self._events_checked = False

    def read_run_json(self) -> dict[str, Any]:
        """Read run.json, which the tool wrote: recipe, settings, and the results of verify (`proven`)."""
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
            raise BadInput(f"{file} contains {seen}", expected=expected, hint=hint)
        return run

    def lock(self) -> None:
        """Lock the run for this process: two trainers would write to the same tables.

        The lock is on the file, not in its content, and ends with the process.
        """
        if not self.is_writer:
            return
        try:
            self._lock = (self.path / ".lock").open("a+", encoding="utf-8")
        except OSError as error:
            self.is_writer = False
            raise BadInput(
                f"the run directory {self.path} is not writable: {error.strerror}",
                expected="a writable directory with run.json",
                hint="envdoctor train --run DIR",
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.is_writer = False  # the files belong to the other process
            self._lock.seek(0)
            raise BadInput(
                f"{self.path} is being trained by process {self._lock.read().strip() or 'unknown'}",
                expected="one trainer per run",
                hint="wait for it to end, or stop that process",
            ) from None
        with contextlib.suppress(OSError):  # the process id is for messages; a full disk must not fail the run
            os.ftruncate(self._lock.fileno(), 0)
            os.write(self._lock.fileno(), str(os.getpid()).encode())

    def unlock(self) -> None:
        """Unlock the run."""
        self._lock.close()

    def prepare_resume(self, resume: str | None) -> Path | None:
        """The checkpoint to resume from; None for a fresh start.

        Newer checkpoints that are incomplete are logged and deleted: the steps that are trained again would write
        into them.
        """
        if not self.is_writer:
            return choose_checkpoint(self.checkpoints, resume)[0] if resume else None
        if not resume:
            self.check_unused()
            return None
        try:
            checkpoint, skipped = choose_checkpoint(self.checkpoints, resume)
        except BadInput:
            self.is_writer = resume == "latest"  # a mistyped name is no event of the run
            raise
        for path, defect in skipped:
            self.write_event("checkpoint_skipped", path=str(path.relative_to(self.path)), reason=defect)
            shutil.rmtree(path)
        return checkpoint

    def archive_files_after(self, checkpoint: Path) -> None:
        """Move the files of later steps aside: the run continues from this checkpoint."""
        step = checkpoint_step(checkpoint)
        folder = archive_later_files(self.path, self.checkpoints, step) if self.is_writer else None
        if folder:
            names = ", ".join(sorted(path.name for path in folder.iterdir()))
            self.note(f"resumed from step {step}: {names} of the later steps were moved to {folder}")

    def check_unused(self) -> None:
        """Refuse a fresh start in a directory with a run."""
        used = [name for name in ("result.json", "metrics.csv") if (self.path / name).exists()]
        if used:
            raise BadInput(
                f"{self.path} already contains a run ({', '.join(used)})",
                expected="a directory with run.json alone, or --resume",
                hint="continue it with --resume latest, or start in a new directory",
            )

    def write_event(self, event: str, **fields: Any) -> None:
        """Append one line to events.jsonl, and flush it."""
        if not self.is_writer:
            return
        file = self.path / "events.jsonl"
        if not self._events_checked:
            _truncate_partial_line(file)
            self._events_checked = True
        record = {"t": round(time.time(), 3), "event": event, **fields}
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(data_without_secrets(replace_nonfinite(record)), ensure_ascii=False) + "\n")

    def start_phase(self, name: str, detail: str = "") -> None:
        """Log the start of a phase."""
        self.write_event("phase", name=name, detail=detail)
        self.log(f"{name}: {detail}" if detail else name)

    def note(self, *messages: str) -> None:
        """Log notes: a replaced setting, or a choice of the installed library."""
        for message in messages:
            self.write_event("note", message=message)
            self.log(f"note: {message}")

    def log(self, line: str) -> None:
        """Print a line, on rank 0 alone."""
        if self.is_writer:
            print(line, flush=True)

    def read_events(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Events of a kind with these field values, oldest first."""
        file = self.path / "events.jsonl"
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        events = [parsed for line in lines if (parsed := _parse_json(line)) and parsed.get("event") == kind]
        return [event for event in events if all(event.get(key) == value for key, value in fields.items())]

    def read_evaluations(self) -> list[dict[str, Any]]:
        """The evaluations, oldest first; one of an earlier step, after a resume, removes the later ones.

        Sample event: {"t": 1.0, "event": "eval", "when": "during", "step": 50, "metrics": {"greedy_reward": 0.6}}
        """
        evaluations: dict[int, dict[str, Any]] = {}
        for event in self.read_events("eval"):
            step = event.get("step")
            if isinstance(step, int) and isinstance(event.get("metrics"), dict):
                evaluations = {at: found for at, found in evaluations.items() if at < step} | {step: event}
        return list(evaluations.values())

    def record_dataset(self, train: Sequence[Any], held_out: Sequence[Any]) -> None:
        """Record the digest of the rows; note where a resumed run has other rows: its metrics do not compare."""
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
                f"the rows differ from those of the run's start: {rows['train']} to train on and {rows['held_out']} "
                f"held out, formerly {first.get('train')} and {first.get('held_out')}; earlier metrics do not compare"
            )

    def read_baseline_evaluation(self) -> dict[str, float]:
        """The metrics of the baseline evaluation, from the run's first start."""
        evaluations = self.read_events("eval", when="before")
        if not evaluations:
            raise BadInput(
                f"{self.path / 'events.jsonl'} has no evaluation before GRPO",
                expected="the events of the run that wrote the checkpoint",
                hint="start the run again in a new directory, without --resume",
            )
        return dict(evaluations[-1]["metrics"])

    def is_finished(self, checkpoint: Path, steps: int) -> bool:
        """Whether the run ended with this checkpoint, which is logged. `steps` is the setting, 0 by epochs."""
        step = checkpoint_step(checkpoint)
        if steps and step > steps:
            raise BadInput(
                f"{checkpoint} is past max_steps = {steps}",
                expected="an earlier checkpoint, or more steps",
                hint=f"--set max_steps={step}",
            )
        end = self.read_final_result()
        over = end.get("status") == "done" and end.get("steps") == step == (steps or step)
        if over:
            self.note(f"the run is finished: step {step} was the last one, and result.json is written")
        return over

    def read_final_result(self) -> dict[str, Any]:
        """The result of a finished run; empty unless the event `done`, which is written last, has the same result."""
        try:
            result = json.loads((self.path / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        done = self.read_events("done")
        return result if done and done[-1].get("result") == result else {}

    def write_result(self, result: dict[str, Any]) -> None:
        """Write result.json atomically."""
        if not self.is_writer:
            return
        temporary = self.path / "result.json.part"
        temporary.write_text(
            json.dumps(replace_nonfinite(result), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        temporary.replace(self.path / "result.json")


class Table:
    """A CSV file with a fixed header; on resume the rows after step `keep_up_to` are removed."""

    def __init__(self, path: Path, header: list[str], keep_up_to: int = 0) -> None:
        self.path, self.header = path, header
        path.touch()
        temporary = path.with_suffix(".csv.part")
        with (
            temporary.open("w", encoding="utf-8", newline="") as new,
            path.open(encoding="utf-8", errors="replace", newline="") as old,  # a kill may cut a character in two
        ):
            table = csv.writer(new)
            table.writerow(header)
            table.writerows(parse_rows(old, header, keep_up_to))
        temporary.replace(path)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Append rows, and flush them; a missing value is an empty cell."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([format_cell(row.get(key)) for key in self.header] for row in rows)

    def read(self) -> list[dict[str, str]]:
        """Every row, by column."""
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def parse_rows(lines: Iterable[str], header: list[str], keep_up_to: int) -> Iterator[list[str]]:
    r"""Rows whose step is at most `keep_up_to`, in the columns of `header`; an incomplete row is dropped.

    Sample, keep_up_to=2: "step,reward\r\n1,0.5\r\n2,0.25\r\n3,0.7\r\n4,0." -> [["1", "0.5"], ["2", "0.25"]]
    """
    rows = csv.reader(lines)
    columns = next(rows, [])
    for row in rows:
        if len(row) == len(columns) and row[0].isdecimal() and int(row[0]) <= keep_up_to:
            named = dict(zip(columns, row, strict=True))  # another version may have had other columns
            yield [named.get(name, "") for name in header]


def format_cell(value: Any) -> str:
    """A number with six significant digits; any other value as text."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinity by None: JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    return [replace_nonfinite(item) for item in value] if isinstance(value, list) else value


def _truncate_partial_line(file: Path) -> None:
    """Remove an incomplete last line, which a kill during a write leaves."""
    if file.exists() and not (content := file.read_bytes()).endswith(b"\n"):
        file.write_bytes(content[: content.rfind(b"\n") + 1])


def _parse_json(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
