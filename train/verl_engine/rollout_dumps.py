"""Read the completions that verl dumps as JSON lines for each step; write generations.csv and reward statistics."""

from __future__ import annotations

import csv
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from packaging.version import Version
from run.directory import Table

HEADER = ["step", "prompt", "completion", "truth", "reward"]
VERL_NAMES = {"prompt": "input", "completion": "output", "truth": "gts", "reward": "score"}
THREADED_DUMP = Version("0.8.0")  # from here on a thread writes the dump, possibly after the step's metrics
WAIT_SECONDS = 3.0

Completions = list[dict[str, Any]]


class RolloutDumps:
    """Moves the dumps `folder`/STEP.jsonl into a table. Dumps in the run directory are deleted after that."""

    def __init__(
        self, table: Path, folder: Path, *, first_step: int, completions: int, delete: bool, threaded: bool
    ) -> None:
        """`completions` is the number per step; `threaded` means that verl may write a dump late."""
        self._folder, self._delete = folder, delete
        self._expected = completions if threaded else 0
        self._table = Table(table, HEADER, first_step)
        if delete:
            self._recover(first_step)

    def read_step(self, step: int) -> Completions:
        """Return a step's completions and add them to the table; none if verl wrote no dump."""
        file = self._folder / f"{step}.jsonl"
        deadline = time.monotonic() + WAIT_SECONDS
        completions = read_dump(file)
        while len(completions) < self._expected and time.monotonic() < deadline:
            time.sleep(0.05)
            completions = read_dump(file)
        self._record(file, step, completions)
        return completions

    def read_remaining(self) -> None:
        """Add the dumps of steps whose metrics never came, for example of the step in which the trainer ended."""
        if self._delete:
            for step, file in self._dumps():
                self._record(file, step, read_dump(file))

    def _recover(self, first_step: int) -> None:
        """After a killed run: add missing dumps up to the checkpoint, and delete later ones, which are repeated."""
        recorded = last_step(self._table.path)
        for step, file in self._dumps():
            if recorded < step <= first_step:
                self._record(file, step, read_dump(file))
            file.unlink(missing_ok=True)

    def _dumps(self) -> list[tuple[int, Path]]:
        return sorted((int(file.stem), file) for file in self._folder.glob("*.jsonl") if file.stem.isdigit())

    def _record(self, file: Path, step: int, completions: Completions) -> None:
        self._table.append([{"step": step, **completion} for completion in completions])
        if self._delete:
            file.unlink(missing_ok=True)


def read_dump(file: Path) -> Completions:
    """Return the completions of a dump; none if it does not exist yet."""
    try:
        return parse_dump(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def parse_dump(text: str) -> Completions:
    r"""Return the completions of a step with the trainer's column names; an incomplete last line is skipped.

    Sample: '{"input": "2+2?", "output": "4", "gts": "4", "score": 1.0, "step": 3, "acc": 1.0}\n{"input": "2+' ->
    [{"prompt": "2+2?", "completion": "4", "truth": "4", "reward": 1.0}]
    """
    completions = []
    for line in text.split("\n")[:-1]:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            completions.append({name: record.get(verl_name) for name, verl_name in VERL_NAMES.items()})
    return completions


def reward_statistics(completions: Completions, *, grouped: bool) -> dict[str, float]:
    """Return TRL's statistics of the rewards, per prompt (GRPO) or over the whole step (PPO).

    {"reward_std": mean of the groups' standard deviations, "frac_reward_zero_std": share of groups without any}
    """
    groups: dict[Any, list[float]] = defaultdict(list)
    for completion in completions:
        if isinstance(completion["reward"], int | float):
            # The dump has no group ids, so a prompt that occurs twice in a step forms one group.
            groups[completion["prompt"] if grouped else None].append(float(completion["reward"]))
    deviations = [statistics.stdev(rewards) for rewards in groups.values() if len(rewards) > 1]
    if not deviations:
        return {}
    result = {"reward_std": statistics.fmean(deviations)}
    if grouped:
        result["frac_reward_zero_std"] = sum(deviation == 0 for deviation in deviations) / len(deviations)
    return result


def last_step(table: Path) -> int:
    """Return the highest step in a table."""
    with table.open(encoding="utf-8", newline="") as lines:
        return max((int(row[0]) for row in csv.reader(lines) if row and row[0].isdigit()), default=0)
