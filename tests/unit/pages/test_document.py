"""Tests of pages: escaping, validity, colours."""

from __future__ import annotations

import re
from itertools import product

from support.cases import each_case
from support.html_pages import page_text, parse_page
from support.paths import PACKAGE

from envdoctor.pages.document import code_block, details, document, escape, link, table

HOSTILE = (
    "</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'--></style><!--",
    "&lt;b&gt; &amp; &#60;", "]]><svg onload=alert(1)>", "</pre></code></table></details>",
    "\x00\x07\x1b[31mred\x9f", "\u202egnp.exe\u2066", "lone \ud800 surrogate", "$policy ${style} $$", "a\r\nb",
)  # fmt: skip


@each_case("text", HOSTILE, ids=ascii)
def test_inserted_text_stays_text(text: str) -> None:
    body = "\n".join((
        f"<h1>{escape(text)}</h1>", code_block([text, text], "command"), details(text, "<p>x</p>"),
        table(text, [text, "b"], [(escape(text), link(text))]), f'<p title="{escape(text)}">x</p>',
    ))  # fmt: skip
    page = document(text, body)
    page.encode()
    root = parse_page(page)
    names = {str(element.tag) for element in root.iter()}
    assert not names & {"img", "svg", "b"}
    shown = " ".join(re.sub(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202e\u2066\ud800\r]", "\ufffd", text).split())
    for name in ("title", "h1", "summary", "caption"):
        assert page_text(next(root.iter(name))) == shown


def test_only_web_addresses_are_links() -> None:
    assert link("https://docs.nvidia.com/?a=1&b=2").startswith('<a href="https://docs.nvidia.com/?a=1&amp;b=2" rel=')
    for address in ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", " https://x.y", "//x.y", ""):
        assert "<a" not in link(address)


def test_style_and_script_cannot_end_their_elements() -> None:
    for name in ("page.css", "page.js"):
        text = (PACKAGE / "pages" / name).read_text()
        assert "</" not in text
        assert "\r" not in text
        assert not re.search(
            r"url\(|@import|fetch\(|XMLHttpRequest|innerHTML|eval\(|document\.write|https?://(?!www\.w3\.org/2000/svg)",
            text,
        )


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, by WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_in_both_colour_schemes() -> None:
    css = (PACKAGE / "pages" / "page.css").read_text()
    schemes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{([^}]*)\}", css)
    ]
    assert len(schemes) == 2
    assert schemes[0].keys() == schemes[1].keys()
    for scheme in schemes:
        colours = scheme.keys() - {"background", "panel", "line"}
        assert {"text", "muted", "ok", "warning", "error", "info", "c0", "c7"} <= colours
        for name, ground in product(colours, ("background", "panel")):
            assert contrast(scheme[name], scheme[ground]) >= 4.5, (name, ground)
    used = re.sub(r":root \{[^}]*\}", "", css)
    assert not re.search(r"#[0-9a-f]{3}", used), "every colour is one of the tested ones"
    assert contrast("#000000", "#ffffff") == 21
