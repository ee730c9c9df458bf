"""Line charts as SVG, several next to each other, with the values for the page's script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from envdoctor.core.record import Record
from envdoctor.pages.axes import number_text, step_range, tick_text, ticks, value_range
from envdoctor.pages.document import details, escape, table
from envdoctor.pages.thinning import KEPT, Point, segments

Style = Literal["faint", "thin", "thick", "filled", "hollow"]  # lines and points
Key = tuple[str, Style, int | None]  # an entry of the legend; None: the style of several colours

WIDTH, HEIGHT = 360, 210
MIN_LEFT, RIGHT, TOP, BOTTOM = 54, 340, 10, 174  # of the plotted area
DIGIT = 7.4  # pixels
COLOURS = 8  # in page.css; further curves are dashed
MAX_COLUMNS, MIN_COLUMNS = 320, 40  # of pixels that a curve is thinned to
MAX_POINTS = 24_000  # of all curves of a page: about 600 kB


class Series(Record, frozen=True):
    """One curve. `colour` counts from 0; series of one run have the same. Values may be NaN."""

    name: str
    style: Style
    colour: int
    points: tuple[Point, ...]

    @property
    def shown(self) -> list[Point]:
        """The points with a value."""
        return [point for point in self.points if not math.isnan(point[1])]


class Frame(NamedTuple):
    """The plotted area of a chart, with the ranges of its axes."""

    left: float
    steps: tuple[float, float]
    values: tuple[float, float]

    def x(self, step: float) -> float:
        """The horizontal place of a step."""
        return self.left + (RIGHT - self.left) * (step - self.steps[0]) / (self.steps[1] - self.steps[0])

    def y(self, value: float) -> float:
        """The vertical place of a value."""
        return BOTTOM - (BOTTOM - TOP) * (value - self.values[0]) / (self.values[1] - self.values[0])


class Chart(Record, frozen=True):
    """The curves of one metric."""

    title: str
    unit: str
    series: tuple[Series, ...]


def charts(drawn: Sequence[Chart], legend: Sequence[Key]) -> str:
    """The charts with one legend, a table of their values, and a sentence on what was left out."""
    lengths = [len(series.points) for chart in drawn for series in chart.series]
    columns = _columns(lengths)
    steps = step_range(step for chart in drawn for series in chart.series for step, _ in series.points)
    keys = "\n".join(_key(*key) for key in legend)
    longest = max(lengths, default=0)
    note = (
        f'<p class="note">The longest curve has {longest:,} points. The steps are divided into {columns} groups; '
        "of each group, the first, lowest, highest and last value are drawn.</p>"
        if longest > KEPT * columns
        else ""
    )
    return "\n".join((
        f'<ul class="legend">\n{keys}\n</ul>',
        '<div class="charts">',
        *(_chart(chart, steps, columns) for chart in drawn),
        "</div>",
        note,
        details("Values as a table", _values(drawn)),
    ))  # fmt: skip


def _columns(lengths: Sequence[int]) -> int:
    """The columns of pixels that curves of these lengths are thinned to, so that the page stays small."""
    for columns in range(MAX_COLUMNS, MIN_COLUMNS, -1):
        if sum(min(length, KEPT * columns) for length in lengths) <= MAX_POINTS:
            return columns
    return MIN_COLUMNS


def _chart(chart: Chart, steps: tuple[float, float], columns: int) -> str:
    values = value_range(value for series in chart.series for _, value in series.shown)
    marks = ticks(*values, 5)
    left = max(MIN_LEFT, 12 + DIGIT * max(len(text) for _, text in marks))
    frame = Frame(round(left, 1), steps, values)
    unit = f' <span class="unit">{escape(chart.unit)}</span>' if chart.unit else ""
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" aria-label="{escape(_summary(chart))}" '
        f'data-steps="{steps[0]!r} {steps[1]!r}" data-area="{frame.left} {RIGHT} {TOP} {BOTTOM}">'
    )
    return "\n".join((
        '<figure class="chart">',
        f"<figcaption><h3>{escape(chart.title)}</h3>{unit}</figcaption>",
        svg,
        *_axes(frame, marks),
        *(_series(series, frame, columns) for series in chart.series),
        "</svg>",
        "</figure>",
    ))  # fmt: skip


def _summary(chart: Chart) -> str:
    """The chart in words, for a screen reader."""
    parts = []
    for series in chart.series:
        shown = series.shown
        if shown:
            (first, start), (last, end) = shown[0], shown[-1]
            parts.append(
                f"{series.name}: {number_text(start)} at step {first:g}, {number_text(end)} at step {last:g}"
            )
    return f"{chart.title}{f' in {chart.unit}' if chart.unit else ''}. {'; '.join(parts)}"


def _axes(frame: Frame, marks: Sequence[tuple[float, str]]) -> Iterator[str]:
    for value, text in marks:
        y = frame.y(value)
        yield f'<path class="grid" d="M{frame.left} {y:.1f}H{RIGHT}"/>'
        yield f'<text x="{frame.left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    for step, text in ticks(*frame.steps, 4, whole=True):
        x = min(frame.x(step), WIDTH - 2 - DIGIT * len(text) / 2)  # the last text ends within the picture
        yield f'<text x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{text}</text>'
    yield f'<path class="axis" d="M{frame.left} {TOP}V{BOTTOM}H{RIGHT}"/>'
    yield f'<text x="{(frame.left + RIGHT) / 2:.1f}" y="{HEIGHT - 4}" text-anchor="middle">step</text>'


def _series(series: Series, frame: Frame, columns: int) -> str:
    lines = segments(series.points, *frame.steps, columns)
    points = [point for line in lines for point in line]
    data = (
        f'data-name="{escape(series.name)}" data-colour="{series.colour}" '
        f'data-x="{" ".join(f"{step:.10g}" for step, _ in points)}" '
        f'data-y="{" ".join(number_text(value) for _, value in points)}"'
    )
    if series.style in ("filled", "hollow"):
        circles = "".join(f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3"/>' for x, y in points)
        return f'<g class="series {series.style} {_colour(series.colour)}" {data}>{circles}</g>'
    drawn = "".join(_line([(frame.x(x), frame.y(y)) for x, y in line]) for line in lines)
    return f'<path class="series {series.style} {_colour(series.colour)}" {data} d="{drawn}"/>'


def _line(points: list[Point]) -> str:
    """A line through points; a single one is a small circle."""
    (x, y), *others = points
    if not others:
        return f"M{x - 1:.1f} {y:.1f}a1 1 0 1 0 2 0a1 1 0 1 0 -2 0"
    return f"M{x:.1f} {y:.1f}" + "".join(f"L{x:.1f} {y:.1f}" for x, y in others)


def _key(name: str, style: Style, colour: int | None) -> str:
    classes = f"series {style} {'muted' if colour is None else _colour(colour)}"
    is_point = style in ("filled", "hollow")
    shape = (
        f'<circle class="{classes}" cx="14" cy="6" r="4"/>' if is_point else f'<path class="{classes}" d="M2 6H26"/>'
    )
    data = "" if colour is None else f' data-colour="{colour}"'
    svg = f'<svg class="key" viewBox="0 0 28 12" aria-hidden="true">{shape}</svg>'
    return f"<li{data}>{svg}<span>{escape(name)}</span></li>"


def _colour(number: int) -> str:
    return f"c{number % COLOURS}" + (f" d{min(3, number // COLOURS)}" if number >= COLOURS else "")


def _values(drawn: Sequence[Chart]) -> str:
    rows = []
    for chart in drawn:
        for series in chart.series:
            shown = [value for _, value in series.shown]
            numbers = [shown[0], shown[-1], min(shown), max(shown)] if shown else []
            cells = [number_text(value) for value in numbers] or ["-"] * 4
            name = f"{escape(chart.title)}{f' ({escape(chart.unit)})' if chart.unit else ''}"
            rows.append((name, escape(series.name), tick_text(len(shown), 1), *cells))
    columns = ("metric", "curve", "values", "first", "last", "lowest", "highest")
    return table("Values of the curves", columns, rows)
