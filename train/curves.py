"""The curves of a run as one PNG: training metrics, raw and smoothed, with the held-out numbers on top."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt


def draw_curves(
    metrics: Path, looks: list[dict[str, Any]], panels: list[tuple[str, list[str]]], title: str, target: Path
) -> None:
    """One panel a metric: its column of metrics.csv, and the held-out metrics that belong to it."""
    with metrics.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    steps = [int(row["step"]) for row in rows]
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3.6), squeeze=False)
    for axis, (column, held_out) in zip(axes[0], panels, strict=True):
        axis.plot(steps, _column(rows, column), color="0.8", linewidth=0.8, label="training, per step")
        if f"{column}_smooth" in rows[0]:
            axis.plot(steps, _column(rows, f"{column}_smooth"), color="tab:blue", label="training, smoothed")
        for name, colour in zip(held_out, ["tab:red", "tab:orange"], strict=False):
            points = [(look["step"], look["metrics"][name]) for look in looks if name in look["metrics"]]
            axis.plot(*zip(*points, strict=True), "o-", color=colour, label=f"held out, {name}")
        axis.set_xlabel("step")
        axis.set_title(column)
        axis.legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(target, dpi=110)
    plt.close(figure)


def _column(rows: list[dict[str, str]], name: str) -> list[float]:
    return [float(row[name]) if row[name] else float("nan") for row in rows]
