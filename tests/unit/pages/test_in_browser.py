"""Pages in headless Chromium: nothing is logged, requested or cut, and the pointer shows values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import CHROMIUM, Page, browser

from envdoctor.pages.document import document
from envdoctor.training.runs.curves import default_metrics
from envdoctor.training.runs.metrics import RunMetrics
from envdoctor.training.runs.page import curves_page

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]
LONG_NAME = "a-run-with-a-long-name-" + "x" * 200


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    rows = [[str(n), str(n / 64), "" if n == 20 else str(1 / n)] for n in range(1, 41)]
    runs = {name: RunMetrics(["step", "reward", "loss"], rows[: len(rows) - short], []) for name, short in
            ((LONG_NAME, 0), ("<script>alert(1)</script>", 10))}  # fmt: skip
    path = tmp_path / "curves.html"
    path.write_text(curves_page(runs, default_metrics(runs)), encoding="utf-8")
    return path


def assert_silent(page: Page, path: Path) -> None:
    assert page.messages == []
    assert list(page.requests.values()) == [path.as_uri()]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 400, 1200])
def test_pages_fit_and_are_silent(page: Page, curves: Path, width: int, dark: bool) -> None:
    page.show(curves.as_uri(), width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach((section) => { section.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)"), "the policy permits the style sheet"
    cut = (
        "[...document.querySelectorAll('.chart svg text')].filter((text) => { "
        "const a = text.getBoundingClientRect(), b = text.ownerSVGElement.getBoundingClientRect(); "
        "return a.left < b.left - .5 || a.right > b.right + .5 "
        "|| a.bottom > b.bottom + .5; }).map((text) => text.textContent)"
    )
    assert page.evaluate(cut) == []
    assert_silent(page, curves)


def test_the_pointer_and_the_keys_show_values(page: Page, curves: Path) -> None:
    page.show(curves.as_uri(), width=1200)
    tip = "document.querySelector('.tip')?.innerText.split(/\\s*\\n\\s*/)"
    assert page.evaluate(tip) is None
    where = (
        "(() => { const svg = document.querySelectorAll('.chart svg')[1], box = svg.getBoundingClientRect(), "
        "[left, right] = svg.dataset.area.split(' ').map(Number), x = left + (right - left) * (STEP - 1) / 39; "
        "return [box.left + x * box.width / 360, box.top + box.height / 2]; })()"
    )
    page.move_mouse(*page.evaluate(where.replace("STEP", "4")))
    assert page.evaluate(tip) == [
        "step 4",
        f"● {LONG_NAME}, each step 0.25",
        "● <script>alert(1)</script>, each step 0.25",
    ]
    assert page.evaluate("document.querySelectorAll('.cursor').length") == 2, "in both charts"
    page.move_mouse(*page.evaluate(where.replace("STEP", "40")))
    assert page.evaluate(tip) == ["step 40", f"● {LONG_NAME}, each step 0.025"]
    box = "document.querySelector('.tip').getBoundingClientRect()"
    left, right = page.evaluate(f"[{box}.left, {box}.right]")
    assert 0 <= left < right <= 1200
    page.move_mouse(1, 1)
    assert page.evaluate(tip) is None
    page.evaluate("document.querySelector('.chart svg').focus()")
    for key, step in (("End", 40), ("ArrowLeft", 39), ("Home", 1), ("ArrowLeft", 1), ("ArrowRight", 2)):
        page.press(key)
        assert page.evaluate(tip)[0] == f"step {step}"
    page.press("Escape")
    assert page.evaluate(tip) is None
    assert_silent(page, curves)


def test_the_policy_blocks_other_scripts_and_resources(page: Page, tmp_path: Path) -> None:
    """What escaping would have to let through is still blocked."""
    path = tmp_path / "x.html"
    body = (
        "<h1>x</h1><script>window.bad = 1</script>"
        "<img src='https://example.invalid/x' onerror='window.bad = 2' alt=''>"
        "<p style='color: red'>x</p><link rel='stylesheet' href='https://example.invalid/x.css'>"
    )
    path.write_text(document("x", body))
    page.show(path.as_uri())
    assert page.evaluate("window.bad") is None
    assert page.evaluate("getComputedStyle(document.querySelector('p')).color") == "rgb(27, 35, 48)"
    assert len([message for message in page.messages if "Content Security Policy" in message]) >= 4
    assert list(page.requests.values()) == [path.as_uri()]
