"""Human output as a self-contained HTML fragment for notebooks, with the colours of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

from envdoctor.output.text import Indented, Part, Rows, Text, Verbatim
from envdoctor.pages.document import escape

LINK = re.compile(r"https://[\w./?=&%#~:+,@-]+")
RULES = """
.envdoctor { background: var(--background); color: var(--text); padding: .6em .9em; line-height: 1.45;
  font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; font-size: 14px; }
.envdoctor div { overflow-wrap: anywhere; white-space: pre-wrap; }
.envdoctor .gap { height: .7em; }
.envdoctor pre, .envdoctor .command { font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.envdoctor pre { background: var(--panel); color: var(--text); margin: .2em 0; padding: .3em .6em; overflow-x: auto; }
.envdoctor pre.command::before { content: "$ "; color: var(--muted); }
.envdoctor table { border-collapse: collapse; margin: .2em 0; color: var(--text); }
.envdoctor th, .envdoctor td { text-align: left; vertical-align: top; padding: .1em 1.2em .1em 0; background: none; }
.envdoctor th { font-weight: normal; color: var(--muted); }
.envdoctor a { color: var(--info); }
.envdoctor .title { font-weight: 600; }
.envdoctor .dim { color: var(--muted); }
.envdoctor .ok { color: var(--ok); }
.envdoctor .info { color: var(--info); }
.envdoctor .warning { color: var(--warning); }
.envdoctor .error, .envdoctor .crashed { color: var(--error); font-weight: 600; }
.envdoctor .unknown { color: var(--unknown); }
"""
# The theme of the front end is more specific than that of the system.
LIGHT_THEMES = '[data-jp-theme-light="true"] .envdoctor, .vscode-light .envdoctor'
DARK_THEMES = '[data-jp-theme-light="false"] .envdoctor, .vscode-dark .envdoctor, html[theme="dark"] .envdoctor'


def fragment(parts: Iterable[Part]) -> str:
    """The parts as one element with its style sheet."""
    body = "\n".join(element for part in parts for element in _elements(part))
    return f'<div class="envdoctor"><style>{_style()}</style>\n{body}\n</div>\n'


@cache
def _style() -> str:
    """The rules, with the light and the dark palette of the pages."""
    css = files("envdoctor.pages").joinpath("page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{([^}]*)\}", css)
    light, dark = f"{{ color-scheme: light; {light} }}", f"{{ color-scheme: dark; {dark} }}"
    return (
        f".envdoctor {light}\n@media (prefers-color-scheme: dark) {{ .envdoctor {dark} }}\n"
        f"{LIGHT_THEMES} {light}\n{DARK_THEMES} {dark}{RULES}"
    )


def _elements(part: Part) -> Iterator[str]:
    if isinstance(part, Verbatim):
        yield f"<pre>{escape(part.text)}</pre>"
    elif isinstance(part, Indented):
        yield f'<div style="margin-left: {part.left}ch">{"".join(_elements(part.part))}</div>'
    elif isinstance(part, Rows):
        yield _table(part)
    else:
        for line in part.lines():
            yield _line(line.rstrip())


def _line(line: Text) -> str:
    plain = line.plain
    indent = len(plain) - len(plain.lstrip())
    style = f' style="margin-left: {indent}ch"' if indent else ""
    if not plain:
        return '<div class="gap"></div>'
    if plain.lstrip().startswith("$ "):
        return f'<pre class="command"{style}>{escape(plain.lstrip()[2:])}</pre>'
    return f"<div{style}>{_spans(line.part(indent, len(plain)))}</div>"


def _table(rows: Rows) -> str:
    lines = []
    if rows.header:
        lines.append("<tr>" + "".join(f"<th>{escape(column.header)}</th>" for column in rows.columns) + "</tr>")
    for number, row in enumerate(rows.rows, start=1):
        lines.append("<tr>" + "".join(f"<td>{_spans(cell)}</td>" for cell in row) + "</tr>")
        span = f'<td colspan="{len(rows.columns)}">'
        lines += [f"<tr>{span}{_line(detail)}</td></tr>" for detail in rows.details.get(number, [])]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _spans(text: Text) -> str:
    return "".join(
        f'<span class="{escape(style)}">{_linked(piece)}</span>' if style else _linked(piece)
        for piece, style in text.pieces
    )


def _linked(text: str) -> str:
    """The text; a link if it is nothing but an address."""
    escaped = escape(text)
    return f'<a href="{escaped}" rel="noopener noreferrer">{escaped}</a>' if LINK.fullmatch(text) else escaped
