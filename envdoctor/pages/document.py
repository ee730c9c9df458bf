"""An HTML document without external resources: its policy permits only its own style sheet and script."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape as escape_markup
from pathlib import Path
from string import Template

# Control characters are not valid in HTML, lone surrogates not in UTF-8, and text direction marks reorder a line.
INVALID = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
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


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[int] = ()) -> str:
    """A table; the cells are HTML, and the first one of each row is its header. `numeric` columns align right."""

    def attributes(number: int) -> str:
        return ' class="number"' if number in numeric else ""

    head = "".join(f'<th scope="col"{attributes(n)}>{escape(name)}</th>' for n, name in enumerate(columns))
    body = "\n".join(
        f'<tr><th scope="row">{cells[0]}</th>'
        + "".join(f"<td{attributes(n)}>{cell}</td>" for n, cell in enumerate(cells[1:], start=1))
        + "</tr>"
        for cells in rows
    )
    return (
        f'<div class="table" tabindex="0" role="group" aria-label="{escape(caption)}"><table>\n'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def link(url: str) -> str:
    """A link to a web page; anything else is only text."""
    shown = escape(url)
    return f'<a href="{shown}" rel="noreferrer noopener">{shown}</a>' if re.match(r"https?://", url) else shown


def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    import hashlib  # loads OpenSSL

    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
