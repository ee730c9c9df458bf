"""An HTML document without external resources: its policy permits only its own style sheet and script."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape as escape_markup
from pathlib import Path
from string import Template

from envdoctor.core.patterns import lazy_pattern

# Control characters are not valid in HTML, lone surrogates not in UTF-8, and text direction marks reorder a line.
INVALID = lazy_pattern(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
LONG_TEXT = 20  # characters
DOCUMENT = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="envdoctor $version">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
$body
</main>
<script>$script</script>
</body>
</html>
""")


def document(title: str, body: str) -> str:
    """A complete document; `body` is HTML."""
    from envdoctor import __version__

    style, script = (_asset(name) for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return DOCUMENT.substitute(
        policy=policy, version=__version__, title=escape(title), style=style, script=script, body=body
    )


def escape(text: object) -> str:
    """A text for the content of an element or for a quoted attribute."""
    return escape_markup(INVALID.sub("\ufffd", str(text)))


def details(summary: str, body: str, *, is_open: bool = False) -> str:
    """A section that can be opened; `body` is HTML."""
    return f"<details{' open' if is_open else ''}>\n<summary>{escape(summary)}</summary>\n{body}\n</details>"


def code_block(lines: Iterable[str], kind: str = "") -> str:
    """Lines that are never wrapped on a screen, but scrolled. `kind` is `command` for lines to copy to a shell."""
    content = escape("\n".join(lines))
    attribute = f' class="{kind}"' if kind else ""
    return f'<pre tabindex="0"{attribute}><code>{content}</code></pre>'


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are HTML, and the first one of each row is its header. Numbers align right.

    Without columns it has no header row.
    """
    cells = [list(row) for row in rows]
    width = len(cells[0]) if cells else len(columns)
    classes = ["", *(_column_class([row[n] for row in cells]) for n in range(1, width))]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(columns, classes, strict=False))
    head = f"<thead><tr>{head}</tr></thead>\n" if columns else ""
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row[1:], classes[1:], strict=True))
        + "</tr>"
        for row in cells
    )
    return (
        f'<div class="table" tabindex="0" role="group" aria-label="{escape(caption)}"><table>\n'
        f"<caption>{escape(caption)}</caption>\n{head}<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _column_class(cells: Sequence[str]) -> str:
    """The class of a column: of numbers, or of long texts, which are not squeezed on a narrow screen."""
    texts = [re.sub("<[^>]*>", "", cell) for cell in cells]
    if texts and all(re.fullmatch(r"-?[\d,]*\.?\d+(e[-+]?\d+)?|-", text) for text in texts):
        return ' class="number"'
    return ' class="wide"' if any(len(text) > LONG_TEXT for text in texts) else ""


def link(url: str) -> str:
    """A link to a web page; anything else is only text."""
    shown = escape(url)
    return f'<a href="{shown}" rel="noreferrer noopener">{shown}</a>' if re.match(r"https?://", url) else shown


def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    import hashlib  # loads OpenSSL

    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
