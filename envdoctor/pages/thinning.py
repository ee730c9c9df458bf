"""Thinning of a curve to what a screen can show: of each column of pixels the first, lowest, highest and last value.

A line through these four points of each column covers the same pixels as the line through all values (Jugel et al.,
M4: A Visualization-Oriented Time Series Data Aggregation, VLDB 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

Point = tuple[float, float]  # step and value
KEPT = 4  # points of each column


def segments(points: Sequence[Point], low: float, high: float, columns: int) -> list[list[Point]]:
    """The lines of a curve between its gaps, thinned to `columns` of the range from `low` to `high`.

    A gap is a value that is NaN. In a thinned curve it is a column of pixels without any value.
    """
    if len(points) <= KEPT * columns:
        parts: list[list[Point]] = [[point] for point in points]
    else:
        scale = columns / (high - low)
        grouped = groupby(points, key=lambda point: min(columns - 1, int((point[0] - low) * scale)))
        parts = [_extremes(list(group)) for _, group in grouped]
    lines: list[list[Point]] = [[]]
    for part in parts:
        shown = [point for point in part if not math.isnan(point[1])]
        if shown:
            lines[-1] += shown
        elif lines[-1]:
            lines.append([])
    return [line for line in lines if line]


def _extremes(points: list[Point]) -> list[Point]:
    shown = [point for point in points if not math.isnan(point[1])]
    if not shown:
        return []
    lowest, highest = (choose(shown, key=lambda point: point[1]) for choose in (min, max))
    return sorted({shown[0], lowest, highest, shown[-1]})
