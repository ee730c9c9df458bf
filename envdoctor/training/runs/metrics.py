"""The metrics of a run, from metrics.csv and the evaluations in events.jsonl."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput
from envdoctor.core.files import open_file
from envdoctor.training.runs.events import EVENTS_FILE, EventReader
from envdoctor.training.runs.state import SMOOTHED, Evaluation, parse_evaluation

METRICS_FILE = "metrics.csv"
LARGEST = 1e300  # a larger number would overflow in the range of an axis; it is shown as a gap, as NaN


class RunMetrics:
    """The table of a run. Its cells are converted to numbers per column, since a page shows only some of them."""

    def __init__(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], evaluations: Sequence[Evaluation]
    ) -> None:
        self.evaluations = evaluations
        self._index = {name: number for number, name in enumerate(header)}
        at = self._index.get("step")
        steps = [] if at is None else [(_number(row[at]), row) for row in rows if len(row) == len(header)]
        self._rows = sorted(((step, row) for step, row in steps if not math.isnan(step)), key=lambda pair: pair[0])

    @property
    def steps(self) -> int:
        """The number of recorded steps."""
        return len(self._rows)

    @property
    def columns(self) -> list[str]:
        """The columns with a number somewhere, in the table's order."""
        return [name for name in self._index if name != "step" and self._has_number(name)]

    def column(self, name: str) -> tuple[tuple[float, float], ...]:
        """Step and value of each step, NaN where there is no number; empty for an unknown column."""
        at = self._index.get(name)
        return () if at is None else tuple((step, _number(row[at])) for step, row in self._rows)

    def held_out(self, name: str) -> tuple[tuple[float, float], ...]:
        """Step and value of each evaluation that has a metric."""
        return tuple((float(each.step), each.metrics[name]) for each in self.evaluations if name in each.metrics)

    def _has_number(self, name: str) -> bool:
        at = self._index[name]
        return any(not math.isnan(_number(row[at])) for _, row in self._rows)


def read_metrics(run: Path) -> RunMetrics:
    """Read a run's metrics; without steps before the first one. An incomplete last row is dropped."""
    header, rows = _read_table(run / METRICS_FILE)
    return RunMetrics(header, rows, _read_evaluations(run / EVENTS_FILE))


def _read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    if not path.is_file():
        return [], []
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8", errors="replace", newline="") as file:
            table = csv.reader(line.replace("\0", "") for line in file if line.endswith("\n"))
            header = next(table, [])
            return header, list(table)
    except OSError as error:
        raise BadInput(
            f"cannot read {path}: {error.strerror}",
            expected="a readable metrics.csv",
            hint=command_line("ls", "-l", path),
        ) from error
    except csv.Error as error:
        raise BadInput(
            f"{path} is not a CSV file: {error}", expected="a metrics.csv of a run", hint=command_line("head", path)
        ) from error


def _read_evaluations(path: Path) -> list[Evaluation]:
    """The evaluations of a run by step. Those after the checkpoint from which it was resumed are replaced."""
    found: dict[int, Evaluation] = {}
    for event in EventReader(path).read_new():
        if event.get("event") == "eval":
            evaluation = parse_evaluation(event)
            found = {step: each for step, each in found.items() if step < evaluation.step} | {
                evaluation.step: evaluation
            }
    return list(found.values())


def smoothed(column: str) -> str:
    """The column with the smoothed values of a metric."""
    return column + SMOOTHED


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if abs(value) <= LARGEST else math.nan
