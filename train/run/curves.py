"""The curves of one or several runs in one figure: training metrics, raw and smoothed, with the held-out numbers."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

Panel = tuple[str, list[str]]  # a column of metrics.csv, and its held-out metrics
Row = dict[str, float]
ROWS_ACROSS = 3  # panels side by side
mpl.rcParams["svg.hashsalt"] = "envdoctor"  # the same run gives the same file


@dataclass(frozen=True)
class Curves:
    """The drawn data of a run. `evaluations` are [{"step": 50, "metrics": {"greedy_reward": 0.6}}], oldest first."""

    name: str
    rows: list[Row]
    evaluations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Metrics that can be drawn: those with a number somewhere, in the table's order."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return [name for name in names if name != "step" and any(math.isfinite(row[name]) for row in self.rows)]


def draw_curves(
    metrics: Path, evaluations: list[dict[str, Any]], panels: list[tuple[str, list[str]]], title: str, target: Path
) -> None:
    """One run: a panel for each metric."""
    draw_runs([Curves("", read_rows(metrics), evaluations)], panels, title, target)


def draw_runs(runs: list[Curves], panels: list[Panel], title: str, target: Path) -> None:
    """One panel per metric, with every run in each; writes the file atomically."""
    across = min(ROWS_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    figure, axes = plt.subplots(down, across, figsize=(5 * across, 3.6 * down), squeeze=False)
    flat = [axis for line in axes for axis in line]
    for axis, (column, held_out) in zip(flat, panels, strict=False):
        for number, run in enumerate(runs):
            draw = _draw_alone if len(runs) == 1 else _draw_with_others
            draw(axis, run, column, held_out, f"C{number % 10}")
        axis.set_xlabel("step")
        axis.set_title(column)
        if len(runs) == 1 and axis.get_legend_handles_labels()[1]:
            axis.legend(fontsize=7)
    for axis in flat[len(panels) :]:
        axis.remove()
    figure.suptitle(title, fontsize=10)
    figure.tight_layout(rect=(0, 0 if len(runs) == 1 else _draw_legend(figure, runs, down), 1, 1))
    temporary = target.with_name(f"{target.name}.part")
    kind = target.suffix.lstrip(".").lower()
    try:
        figure.savefig(temporary, dpi=110, format=kind, metadata={"Date": None} if kind == "svg" else None)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
        plt.close(figure)


def read_rows(metrics: Path) -> list[Row]:
    """The rows of metrics.csv; none before the file exists."""
    return parse_table(metrics.read_text(encoding="utf-8", errors="replace")) if metrics.exists() else []


def parse_table(text: str) -> list[Row]:
    r"""Rows as numbers, NaN where there is none; an incomplete last row is dropped.

    Sample: "step,reward,kl\r\n1,0.5,\r\n2,0.2" -> [{"step": 1.0, "reward": 0.5, "kl": nan}]
    """
    lines = list(csv.reader(io.StringIO(text, newline="")))
    if not lines:
        return []
    header, *rows = lines
    if rows and not text.endswith("\n"):
        rows.pop()
    complete = [dict(zip(header, map(_number, row), strict=True)) for row in rows if len(row) == len(header)]
    return [row for row in complete if math.isfinite(row.get("step", math.nan))]


def default_panels(runs: list[Curves]) -> list[Panel]:
    """The reward, the smoothed metrics, the completion length and the entropy."""
    known = list(dict.fromkeys(name for run in runs for name in run.columns))
    smooth = [name.removesuffix("_smooth") for name in known if name.endswith("_smooth")]
    usual = ["reward", *smooth, "completion_length", "entropy"]
    return [panel_of(name, runs) for name in dict.fromkeys(usual) if name in known]


def panel_of(column: str, runs: list[Curves]) -> Panel:
    """A column with those of its held-out metrics, greedy and sampled, that the runs have."""
    known = {name for run in runs for evaluation in run.evaluations for name in evaluation["metrics"]}
    return column, [name for name in (f"greedy_{column}", f"sampled_{column}") if name in known]


def _draw_alone(axis: Any, run: Curves, column: str, held_out: list[str], _colour: str) -> None:
    steps = [row["step"] for row in run.rows]
    if steps:
        axis.plot(steps, _column(run.rows, column), color="0.8", linewidth=0.8, label="training, per step")
    if any(f"{column}_smooth" in row for row in run.rows[:1]):
        axis.plot(steps, _column(run.rows, f"{column}_smooth"), color="tab:blue", label="training, smoothed")
    for name, colour in zip(held_out, ["tab:red", "tab:orange"], strict=False):
        points = _points(run, name)
        if points:
            axis.plot(*zip(*points, strict=True), "o-", color=colour, label=f"held out, {name}")


def _draw_with_others(axis: Any, run: Curves, column: str, held_out: list[str], colour: str) -> None:
    """One colour per run: a line for the training, points for the evaluations, greedy filled and sampled hollow."""
    steps = [row["step"] for row in run.rows]
    smooth = any(f"{column}_smooth" in row for row in run.rows[:1])
    if smooth:
        axis.plot(steps, _column(run.rows, column), color=colour, linewidth=0.6, alpha=0.25)
    if steps:
        values = _column(run.rows, f"{column}_smooth" if smooth else column)
        axis.plot(steps, values, color=colour)
    for name, face in zip(held_out, [colour, "none"], strict=False):
        points = _points(run, name)
        if points:
            axis.plot(*zip(*points, strict=True), "o", color=colour, markerfacecolor=face, markersize=5)


def _draw_legend(figure: Any, runs: list[Curves], down: int) -> float:
    """One legend for all panels, below them; the share of the height that it takes."""
    lines = [Line2D([], [], color=f"C{number % 10}", label=run.name) for number, run in enumerate(runs)]
    marks = [
        Line2D([], [], color="0.4", marker="o", linestyle="", markerfacecolor=face, label=f"held out, {kind}")
        for kind, face in (("greedy", "0.4"), ("sampled", "none"))
    ]
    columns = min(5, len(runs) + 2)
    figure.legend(handles=[*lines, *marks], loc="lower center", ncol=columns, fontsize=8, frameon=False)
    return 0.25 * math.ceil((len(runs) + 2) / columns) / (3.6 * down) + 0.02


def _points(run: Curves, name: str) -> list[tuple[float, float]]:
    return [
        (found["step"], found["metrics"][name]) for found in run.evaluations if found["metrics"].get(name) is not None
    ]


def _column(rows: list[Row], name: str) -> list[float]:
    return [row.get(name, math.nan) for row in rows]


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
