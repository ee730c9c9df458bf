"""A step's answers, which verl dumps as JSON lines, as rows of generations.csv and as what the alarms ask of them."""

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
OURS = {"prompt": "input", "completion": "output", "truth": "gts", "reward": "score"}  # verl's names by ours
LATE = Version("0.8.0")  # from here on a thread of the trainer writes the dump, maybe after the step's numbers
WAIT_SECONDS = 3.0

Answers = list[dict[str, Any]]


class Generations:
    """Takes `folder`/STEP.jsonl as it comes. Dumps of the run's own folder go when their rows are in the table."""

    def __init__(self, table: Path, folder: Path, *, first_step: int, answers: int, own: bool, late: bool) -> None:
        self._folder, self._own = folder, own
        self._expected = answers if late else 0
        self._table = Table(table, HEADER, first_step)
        if own:
            self._settle(first_step)

    def take(self, step: int) -> Answers:
        """A step's answers, now in the table; none where verl dumped none."""
        file = self._folder / f"{step}.jsonl"
        last = time.monotonic() + WAIT_SECONDS
        answers = read_dump(file)
        while len(answers) < self._expected and time.monotonic() < last:
            time.sleep(0.05)
            answers = read_dump(file)
        self._keep(file, step, answers)
        return answers

    def take_rest(self) -> None:
        """What was dumped of a step whose numbers never came, as when the trainer was ended in it."""
        if self._own:
            for step, file in self._dumps():
                self._keep(file, step, read_dump(file))

    def _settle(self, first_step: int) -> None:
        """After a kill: dumps up to the checkpoint are taken if they were not, the later steps are done again."""
        written = last_step(self._table.path)
        for step, file in self._dumps():
            if written < step <= first_step:
                self._keep(file, step, read_dump(file))
            file.unlink(missing_ok=True)

    def _dumps(self) -> list[tuple[int, Path]]:
        return sorted((int(file.stem), file) for file in self._folder.glob("*.jsonl") if file.stem.isdigit())

    def _keep(self, file: Path, step: int, answers: Answers) -> None:
        self._table.append([{"step": step, **answer} for answer in answers])
        if self._own:
            file.unlink(missing_ok=True)


def read_dump(file: Path) -> Answers:
    """A dump's answers; none where it is not there yet."""
    try:
        return parse_dump(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def parse_dump(text: str) -> Answers:
    r"""The answers of a step, in our names. A line that is not whole yet is left out.

    Sample: '{"input": "2+2?", "output": "4", "gts": "4", "score": 1.0, "step": 3, "acc": 1.0}\n{"input": "2+' ->
    [{"prompt": "2+2?", "completion": "4", "truth": "4", "reward": 1.0}]
    """
    answers = []
    for line in text.split("\n")[:-1]:
        try:
            dumped = json.loads(line)
        except ValueError:
            continue
        if isinstance(dumped, dict):
            answers.append({ours: dumped.get(theirs) for ours, theirs in OURS.items()})
    return answers


def compare(answers: Answers, *, grouped: bool) -> dict[str, float]:
    """How far rewards lie apart, as TRL tells it: within a prompt's answers (GRPO), else over all of them (PPO).

    {"reward_std": mean of the groups' standard deviations, "frac_reward_zero_std": share of groups without any}
    """
    groups: dict[Any, list[float]] = defaultdict(list)
    for answer in answers:
        if isinstance(answer["reward"], int | float):
            # A prompt that is twice in a step is one group here: verl's own numbers of groups are not in the dump.
            groups[answer["prompt"] if grouped else None].append(float(answer["reward"]))
    spreads = [statistics.stdev(rewards) for rewards in groups.values() if len(rewards) > 1]
    if not spreads:
        return {}
    found = {"reward_std": statistics.fmean(spreads)}
    if grouped:
        found["frac_reward_zero_std"] = sum(spread == 0 for spread in spreads) / len(spreads)
    return found


def last_step(table: Path) -> int:
    """The highest step that a table has rows of."""
    with table.open(encoding="utf-8", newline="") as lines:
        return max((int(row[0]) for row in csv.reader(lines) if row and row[0].isdigit()), default=0)
