"""The range of an axis, its ticks and their texts."""

from __future__ import annotations

import math
from collections.abc import Iterable

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # distances of ticks, times a power of ten
MIN_SHARE = 1e-9  # of a value that a range spans at least, since a float has 16 digits
PADDING = 0.06  # of the range, above and below the curves


def value_range(values: Iterable[float]) -> tuple[float, float]:
    """The range of a vertical axis: around all values, not below 0 unless a value is; (0, 1) without values."""
    shown = list(values)
    if not shown:
        return 0.0, 1.0
    low, high = min(shown), max(shown)
    padding = (high - low) * PADDING or max(abs(high) * 0.1, MIN_SHARE)
    padding = max(padding, max(abs(low), abs(high)) * MIN_SHARE)
    return (max(0.0, low - padding) if low >= 0 else low - padding), high + padding


def step_range(steps: Iterable[float]) -> tuple[float, float]:
    """The range of a horizontal axis: from the first step to the last one."""
    shown = list(steps)
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[tuple[float, str]]:
    """About `count` round values within a range, with their texts; `whole`: integers only."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    distance = next(step * power for step in STEPS if raw <= step * power * (1 + 1e-12))
    if whole:
        distance = max(1.0, distance if distance % 1 == 0 else math.ceil(distance))
    first, last = math.ceil(low / distance - 1e-9), math.floor(high / distance + 1e-9)
    return [(number * distance, tick_text(number * distance, distance)) for number in range(first, last + 1)]


def tick_text(value: float, distance: float) -> str:
    """A tick's text, with as many decimals as the distance to the next tick needs: 0.25, 1,500, 2e-05."""
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or distance < 1e-4:
        digits = max(0, math.floor(math.log10(abs(value)) - math.log10(distance) + 1e-9))
        mantissa, exponent = f"{value:.{min(digits + 1, 9)}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}"
    decimals = max(0, -math.floor(math.log10(distance) + 1e-9))
    if not math.isclose(round(distance, decimals), distance):  # 0.25
        decimals += 1
    return f"{value:,.{decimals}f}"


def number_text(value: float) -> str:
    """A value with six digits at most."""
    return f"{value:.6g}"
