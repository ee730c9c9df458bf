"""Human output as HTML, for pages and notebooks, so that they have the words of the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from envdoctor.core.patterns import lazy_pattern
from envdoctor.output.text import QUOTED, Indented, Part, Rows, Text, Verbatim
from envdoctor.pages.document import code_block, escape, link, table

CLASSES = {"dim": "muted", "crashed": "error"}  # of styles; others have their own name
CODE_STYLES = frozenset({"command", "path"})
URL = lazy_pattern(r"https?://\S+")
COMMAND = "$ "
GAP = lazy_pattern(" {2,}")
# Of a notebook, whose front end has a style of its own.
RULES = """
.envdoctor { background: var(--background); color: var(--text); padding: .6em .9em; line-height: 1.45;
  font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; font-size: 14px; }
.envdoctor p, .envdoctor h3 { margin: .25em 0; overflow-wrap: anywhere; font-size: 14px; color: inherit; }
.envdoctor h3 { margin-top: .8em; }
.envdoctor pre, .envdoctor code { font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  background: none; color: inherit; padding: 0; }
.envdoctor pre { background: var(--panel); margin: .25em 0; padding: .3em .6em; overflow-x: auto; }
.envdoctor .table { overflow-x: auto; }
.envdoctor table { border-collapse: collapse; margin: .25em 0; color: var(--text); }
.envdoctor caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.envdoctor th, .envdoctor td { text-align: left; vertical-align: top; padding: .1em 1.2em .1em 0; background: none;
  font-weight: normal; }
.envdoctor thead th { color: var(--muted); }
.envdoctor .number { text-align: right; }
.envdoctor a, .envdoctor .info { color: var(--info); }
.envdoctor .muted { color: var(--muted); }
.envdoctor .ok { color: var(--ok); }
.envdoctor .warning { color: var(--warning); }
.envdoctor .error { color: var(--error); font-weight: 600; }
.envdoctor .unknown { color: var(--unknown); }
"""
# The theme of the front end is more specific than that of the system.
LIGHT_THEMES = '[data-jp-theme-light="true"] .envdoctor, .vscode-light .envdoctor'
DARK_THEMES = '[data-jp-theme-light="false"] .envdoctor, .vscode-dark .envdoctor, html[theme="dark"] .envdoctor'


def to_html(parts: Iterable[Part], caption: str = "Values") -> str:
    """The parts as HTML blocks.

    A text that begins with a title is a heading, and the caption of the next table.
    """
    blocks = []
    for part in parts:
        inner = part.part if isinstance(part, Indented) else part
        match inner:
            case Verbatim():
                blocks.append(code_block(inner.text.splitlines()))
            case Rows():
                blocks.append(_table(inner, caption))
            case Text() if isinstance(part, Indented) and "\n" in inner.plain.strip():  # output of a program
                blocks.append(code_block(inner.plain.splitlines()))
            case Text():
                lines = [line for line in inner.lines() if line.plain.strip()]
                blocks += [_line(line) for line in lines]
                caption = next((line.plain.strip() for line in lines if _is_title(line)), caption)
    return "\n".join(blocks)


def fragment(parts: Iterable[Part]) -> str:
    """The parts as one element with its style sheet, for a notebook."""
    return f'<div class="envdoctor"><style>{_style()}</style>\n{to_html(parts)}\n</div>\n'


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


def inline(text: Text) -> str:
    """A text as HTML within a line. HTML would collapse the spaces that separate its parts."""
    plain = text.plain
    inner = text.part(len(plain) - len(plain.lstrip()), len(plain.rstrip()))
    return GAP.sub("\N{EM SPACE}", "".join(_piece(piece, style) for piece, style in inner.pieces))


def _line(line: Text) -> str:
    plain = line.plain.strip()
    if plain.startswith(COMMAND):
        return code_block([plain.removeprefix(COMMAND)], "command")
    if URL.fullmatch(plain):
        return f"<p>{link(plain)}</p>"
    name = "h3" if _is_title(line) else "p"
    return f"<{name}>{inline(line)}</{name}>"


def _is_title(line: Text) -> bool:
    return bool(line.pieces) and line.pieces[0][1] == "title"


def _table(rows: Rows, caption: str) -> str:
    columns = [column.header for column in rows.columns] if rows.header else []
    cells = [[inline(cell) for cell in row] for row in rows.rows]
    for number, details in rows.details.items():
        cells[number - 1][-1] += "".join(f"<br>{inline(detail)}" for detail in details)
    return table(caption, columns, cells)


def _piece(text: str, style: str) -> str:
    if style in CODE_STYLES:
        return f"<code>{escape(text)}</code>"
    parts, start = [], 0
    for quoted in QUOTED.finditer(text):
        parts += [escape(text[start : quoted.start()]), f"<code>{escape(quoted[0][1:-1])}</code>"]
        start = quoted.end()
    content = "".join(parts) + escape(text[start:])
    if style == "title":
        return f"<strong>{content}</strong>"
    return f'<span class="{CLASSES.get(style, style)}">{content}</span>' if style and style != "name" else content
