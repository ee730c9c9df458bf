"""What the metrics of several tasks share."""

from __future__ import annotations

from collections.abc import Iterable


def mean(values: Iterable[float | None]) -> float:
    """Return the mean of the known values; 0 without one."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0
