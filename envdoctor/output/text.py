"""The parts of human output: styled text, indented text and tables. `layout` turns them into lines.

Rich would need 50 ms of each start, and it pads, cuts and breaks lines within a command or a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import printable
from envdoctor.core.program import start_command

Piece = tuple[str, str]  # text and style
# Styles whose text is never broken at its spaces. `path` and `name` have no colour.
WHOLE_STYLES = frozenset({"command", "path", "name"})
QUOTED = lazy_pattern(r"`[^`\n]+`")
# A command within a sentence, with its options and paths.
COMMAND = lazy_pattern(
    r"\benvdoctor (?:(?:fleet|profiles|facts) )?[a-z][a-z-]*(?: [\w.-]+(?= --))?"
    r"(?: (?:--?[a-z][\w-]*(?: [\w./~][^\s;)]*)?|[A-Z]{3}\S*|[./~]\S+))*"
)
GAP = lazy_pattern(r"[ \n]+")


class Text:
    """Text with styles. It wraps at spaces, but not within a command, a path, a name or `quoted text`.

    Lines that begin with `$ ` and texts with `wrap=False` are not wrapped at all.
    """

    def __init__(self, text: str = "", style: str = "", *, wrap: bool = True) -> None:
        self.pieces: list[Piece] = []
        self.wrap = wrap
        self.append(text, style)

    @classmethod
    def assemble(cls, *parts: str | Piece | Text, wrap: bool = True) -> Text:
        """Text of several parts: a text, a text with a style, or a Text."""
        whole = cls(wrap=wrap)
        for part in parts:
            whole.append(*part) if isinstance(part, tuple) else whole.append(part)
        return whole

    def append(self, text: str | Text, style: str = "") -> Text:
        """Add text at the end."""
        if isinstance(text, Text):
            self.pieces += text.pieces
        elif text:
            text = start_command(text) if style == "command" else text
            self.pieces.append((printable(text.expandtabs()), style))
        return self

    def join(self, parts: Iterable[Text]) -> Text:
        """The parts with this text between them."""
        whole = Text()
        for number, part in enumerate(parts):
            if number:
                whole.append(self)
            whole.append(part)
        return whole

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(text for text, _ in self.pieces)

    def lines(self) -> list[Text]:
        """The text, split at line breaks."""
        plain, start, lines = self.plain, 0, []
        for line in plain.split("\n"):
            lines.append(self.part(start, start + len(line)))
            start += len(line) + 1
        return lines

    def part(self, start: int, end: int) -> Text:
        """The characters from start to end with their styles."""
        part, position = Text(wrap=self.wrap), 0
        for text, style in self.pieces:
            piece = text[max(0, start - position) : max(0, end - position)]
            if piece:
                part.pieces.append((piece, style))
            position += len(text)
        return part

    def rstrip(self) -> Text:
        """The text without spaces at its end."""
        plain = self.plain
        return self if plain == (kept := plain.rstrip()) else self.part(0, len(kept))

    def units(self) -> Iterator[tuple[int, int]]:
        """Start and end of the parts that stay on one line."""
        plain = self.plain
        if not self.wrap or plain.lstrip().startswith("$ "):
            yield 0, len(plain)
            return
        whole = [match.span() for pattern in (QUOTED, COMMAND) for match in pattern.finditer(plain)]
        position = 0
        for text, style in self.pieces:
            if style in WHOLE_STYLES:
                whole.append((position, position + len(text)))
            position += len(text)
        start = 0
        for gap in GAP.finditer(plain):
            if gap.start() and not any(first < gap.end() and gap.start() < last for first, last in whole):
                yield start, gap.start()
                start = gap.end()
        if start < len(plain):
            yield start, len(plain)


class Verbatim(NamedTuple):
    """A text that is written unchanged, such as the content of a file."""

    text: str


class Indented(NamedTuple):
    """A text or a table with spaces on its left."""

    part: Text | Rows
    left: int


class Column(NamedTuple):
    """A column of a table."""

    header: str
    style: str = ""


class Rows:
    """A table without lines. Below 60 columns, and where a cell would be broken, each row is a stack of lines."""

    def __init__(self, *columns: Column, header: bool = True) -> None:
        self.columns, self.header = columns, header
        self.rows: list[list[Text]] = []
        self.details: dict[int, list[Text]] = {}

    def add_row(self, *cells: str | Text) -> None:
        """Add a row."""
        texts = [cell if isinstance(cell, Text) else Text(cell) for cell in cells]
        texts += [Text() for _ in self.columns[len(texts) :]]
        self.rows.append([_with_style(text, column.style) for text, column in zip(texts, self.columns, strict=True)])

    def add_detail(self, text: Text) -> None:
        """Add a line below the last row that is independent of the columns."""
        self.details.setdefault(len(self.rows), []).append(text)


Part = Text | Verbatim | Indented | Rows


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 check`, `2 checks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _with_style(text: Text, style: str) -> Text:
    return Text.assemble(*((piece, own or style) for piece, own in text.pieces), wrap=text.wrap) if style else text


def table(*columns: str) -> Rows:
    """A table with a header."""
    return Rows(*map(Column, columns))


def facts_table() -> Rows:
    """A table of facts without a header: name, value, source."""
    return Rows(Column("", "dim"), Column(""), Column("", "dim"), header=False)


def indent(part: Text | Rows, left: int = 4) -> Indented:
    """The part, indented by `left` columns."""
    return Indented(part, left)


def command(line: str) -> Text:
    """A command to paste."""
    return Text(f"$ {line}", style="command")


def hint(text: str) -> Text:
    """The hint of an error, which may be a command."""
    return Text.assemble(("hint: ", "info"), start_command(text), wrap=False)
