"""Tests of charts: ticks, thinning, gaps."""

from __future__ import annotations

import math
import random

from support.cases import each_case
from support.html_pages import page_text, parse_page
from support.recorded_results import assert_text_as_recorded

from envdoctor.pages.axes import ticks, value_range
from envdoctor.pages.chart import Chart, Series, charts
from envdoctor.pages.document import document
from envdoctor.pages.thinning import KEPT, segments

NAN = math.nan


def draw(*series: Series, title: str = "Reward", unit: str = "") -> str:
    return document("x", f"<h1>x</h1><h2>y</h2>{charts([Chart(title, unit, series)], [('a', 'thin', 0)])}")


def test_ticks_are_round_and_within_the_range() -> None:
    assert [text for _, text in ticks(0, 1, 4)] == ["0", "0.25", "0.50", "0.75", "1.00"]
    assert [text for _, text in ticks(0.9, 300.2, 4, whole=True)] == ["100", "200", "300"]
    assert [text for _, text in ticks(0, 100_000, 4, whole=True)] == ["0", "25,000", "50,000", "75,000", "100,000"]
    assert [text for _, text in ticks(-1.5e-5, 2.1e-5, 3)] == ["0", "2e-5"]
    assert [text for _, text in ticks(0.5, 1.5, 4, whole=True)] == ["1"]
    assert [text for _, text in ticks(1e9, 1e9 + 4, 4)][:2] == ["1e9", "1.000000001e9"]


@each_case("seed", range(40))
def test_ticks_of_random_ranges(seed: int) -> None:
    chosen = random.Random(seed)
    scale = 10.0 ** chosen.randint(-12, 200)
    values = [chosen.uniform(-1, 1) * scale for _ in range(chosen.randint(1, 5))]
    low, high = value_range(values)
    assert low < min(values) <= max(values) < high
    found = ticks(low, high, 5)
    assert 2 <= len(found) <= 8
    assert len({text for _, text in found}) == len(found), found
    assert all(low - abs(low) * 1e-6 <= value <= high + abs(high) * 1e-6 for value, _ in found)
    assert all(
        math.isclose(float(text.replace(",", "")), value, rel_tol=1e-6, abs_tol=1e-9 * scale) for value, text in found
    )


def test_short_curves_are_complete_and_gaps_stay() -> None:
    points = [(1.0, 1.0), (2.0, NAN), (3.0, 3.0), (4.0, 2.0), (5.0, NAN), (6.0, NAN)]
    assert segments(points, 1, 6, 40) == [[(1, 1)], [(3, 3), (4, 2)]]
    assert segments([], 0, 1, 40) == []
    assert segments([(1.0, NAN)], 0.5, 1.5, 40) == []


def test_long_curves_keep_their_extremes_and_gaps() -> None:
    chosen = random.Random(1)
    points = [(float(n), chosen.gauss(0, 1)) for n in range(1, 100_001)]
    points[77_776] = (77_777.0, 50.0)
    points[12_344] = (12_345.0, -50.0)
    points[40_000:50_000] = [(step, NAN) for step, _ in points[40_000:50_000]]
    points[60_000] = (60_001.0, NAN)  # less than a pixel
    lines = segments(points, 1, 100_000, 320)
    kept = [point for line in lines for point in line]
    assert len(kept) <= KEPT * 320
    assert set(kept) <= {point for point in points if point[1] == point[1]}
    assert {points[0], points[-1], (77_777.0, 50.0), (12_345.0, -50.0)} <= set(kept)
    assert kept == sorted(kept)
    assert len(lines) == 2
    assert (lines[0][-1][0], lines[1][0][0]) == (40_000, 50_001)


def test_pages_of_long_runs_are_small_and_mention_the_thinning() -> None:
    points = tuple((float(n), math.sin(n)) for n in range(1, 100_001))
    page = draw(Series("a", "thin", 0, points))
    assert len(page) < 100_000
    assert "The longest curve has 100,000 points. The steps are divided into 320 groups" in page
    assert "groups" not in draw(*(Series(f"{n}", "thin", n, points[:1000]) for n in range(24))), "the page is small"
    assert len(draw(*(Series(f"run {n}", "thin", n, points[:2000]) for n in range(40)))) < 1_000_000


def test_chart_has_a_summary_units_and_a_table() -> None:
    root = parse_page(
        draw(Series("each step", "thin", 0, ((1, 0.25), (2, NAN), (3, 1 / 3))), title="Step time", unit="s")
    )
    (svg,) = (element for element in root.iter() if element.get("role") == "img")
    assert svg.get("aria-label") == "Step time in s. each step: 0.25 at step 1, 0.333333 at step 3"
    row = next(root.iter("tbody"))
    assert page_text(row) == "Step time (s)each step20.250.3333330.250.333333"
    assert "step" in page_text(svg)


@each_case(
    "points", [(), ((1.0, NAN),), ((5.0, 0.0),), ((1.0, -1e300), (2.0, 1e300)), ((1.0, 1e-300), (2.0, 2e-300))]
)
def test_unusual_curves_are_drawn(points: tuple[tuple[float, float], ...]) -> None:
    page = draw(Series("a", "thin", 0, points), Series("b", "hollow", 9, points))
    parse_page(page)
    assert "nan" not in page.partition("<figure")[2]
    assert "inf" not in page.partition("<figure")[2].replace("info", "")


def test_charts_are_as_recorded() -> None:
    rising = tuple((float(step), step / 7) for step in range(1, 6))
    drawn = [
        Chart("Reward", "", (Series("a", "thick", 0, rising), Series("b", "faint", 1, ((1.0, 0.5), (2.0, NAN))))),
        Chart("Tokens", "per second", (Series("constant", "thin", 7, ((1.0, 2e7), (5.0, 2e7))),)),
        Chart("Held out", "", (Series("c", "filled", 8, ((1.0, -1.0), (3.0, 4.0))), Series("d", "hollow", 40, ()))),
        Chart("Nothing", "GiB", (Series("none", "thin", 2, ((1.0, NAN),)),)),
        Chart("Zero", "", (Series("zero", "thin", 3, ((1000.0, 0.0),)),)),
    ]
    legend = [("a", "thick", 0), ("points", "filled", None), ("dashed", "thin", 9)]
    assert_text_as_recorded("screens/charts.html", charts(drawn, legend) + "\n")
