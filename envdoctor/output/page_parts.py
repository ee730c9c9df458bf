"""The parts of human output as HTML, so that a page has the words of the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envdoctor.output.text import QUOTED, Indented, Part, Rows, Text, Verbatim
from envdoctor.pages.document import code_block, escape, link, table

CLASSES = {"dim": "muted", "crashed": "error"}  # of styles; others have their own name
CODE_STYLES = frozenset({"command", "path"})
URL = re.compile(r"https?://\S+")
COMMAND = "$ "
GAP = re.compile(" {2,}")


def to_html(parts: Iterable[Part], caption: str = "") -> str:
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
    return table(caption, columns, ([inline(cell) for cell in row] for row in rows.rows))


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
