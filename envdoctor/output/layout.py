"""Turn the parts of human output into lines for a terminal of some width, or for a pipe."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.output.text import Indented, Part, Rows, Text, Verbatim

STACKED_BELOW = 60  # columns of a terminal
MIN_LIST_COLUMN = 30  # of the texts of a list with names, which is not stacked if they are this wide
MIN_WRAPPED_COLUMN = 20  # a column that is wrapped more narrowly is hard to read
GAP = 2  # spaces between columns
LEAD = lazy_pattern(r" *(?:(?:[✓✗•!?i-]|\d+\.) +)?")  # continued lines start below the first word after it


def lines(part: Part, width: int | None) -> Iterator[Text]:
    """The lines of a part. The width is None in a pipe, where nothing is wrapped."""
    if isinstance(part, Verbatim):
        yield Text(part.text, wrap=False)
    elif isinstance(part, Indented):
        for line in lines(part.part, width and max(1, width - part.left)):
            yield Text.assemble(" " * part.left, line) if line.pieces else line
    elif isinstance(part, Rows):
        yield from _table_lines(part, width)
    else:
        for line in part.lines():
            lead = LEAD.match(line.plain)
            yield from wrap(line, width, hanging=lead.end() if lead else 0)


def plain_text(parts: Iterable[Part]) -> str:
    """The parts as in a pipe: without colours, not wrapped."""
    return "".join(f"{line.plain}\n" for part in parts for line in lines(part, None))


def wrap(line: Text, width: int | None, hanging: int = 0) -> Iterator[Text]:
    """Break a line at spaces. Continued lines are indented by `hanging`; a unit that is too long stays whole."""
    if width is None or cell_width(line.plain) <= width:
        yield line.rstrip()
        return
    start = end = 0
    for first, last in line.units():
        left = hanging if start else 0
        if end > hanging and left + cell_width(line.plain[start:last]) > width:
            yield _continued(line, start, end, left)
            start = first
        end = last
    yield _continued(line, start, end, hanging if start else 0)


def _continued(line: Text, start: int, end: int, left: int) -> Text:
    return Text.assemble(" " * left, line.part(start, end).rstrip())


def cell_width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _table_lines(rows: Rows, width: int | None) -> Iterator[Text]:
    header = [Text(column.header, style="dim") for column in rows.columns]
    table = [header, *rows.rows] if rows.header and rows.rows else rows.rows
    widths = _column_widths(table, width, has_header=rows.header)
    if widths is None:
        yield from _stacked(rows, width)
        return
    offset = len(table) - len(rows.rows)
    for number, row in enumerate(table):
        yield from _row_lines(row, widths)
        yield from _details(rows, number + 1 - offset, width)


def _column_widths(table: list[list[Text]], width: int | None, *, has_header: bool) -> list[int | None] | None:
    """The width of each column, or None if the table does not fit. The last column is not limited in a pipe."""
    columns = list(zip(*table, strict=True))
    natural = [max(cell_width(line.plain) for cell in column for line in cell.lines()) for column in columns]
    if width is None:
        return [*natural[:-1], None]
    if width < STACKED_BELOW and (has_header or len(columns) != 2 or width - GAP - natural[0] < MIN_LIST_COLUMN):
        return None
    available = width - GAP * (len(columns) - 1)
    smallest = [max(_longest_unit(cell) for cell in column) for column in columns]
    for limit in range(max([*natural, MIN_WRAPPED_COLUMN]), MIN_WRAPPED_COLUMN - 1, -1):
        widths = [max(low, min(full, limit)) for low, full in zip(smallest, natural, strict=True)]
        if sum(widths) <= available:
            return list(widths)
    return None


def _longest_unit(cell: Text) -> int:
    spans = [(line.plain, span) for line in cell.lines() for span in line.units()]
    return max((cell_width(plain[start:end]) for plain, (start, end) in spans), default=0)


def _row_lines(row: list[Text], widths: list[int | None]) -> Iterator[Text]:
    cells = [
        [part for line in cell.lines() for part in wrap(line, width)] for cell, width in zip(row, widths, strict=True)
    ]
    for number in range(max(map(len, cells), default=0)):
        joined, position, column_start = Text(), 0, 0
        for cell, width in zip(cells, widths, strict=True):
            if number < len(cell) and cell[number].pieces:
                joined.append(" " * (column_start - position)).append(cell[number])
                position = column_start + cell_width(cell[number].plain)
            column_start += (width or 0) + GAP
        yield joined.rstrip()


def _stacked(rows: Rows, width: int | None) -> Iterator[Text]:
    """The first cell, and below it each other cell with the header of its column."""
    if rows.header and rows.rows and rows.columns[0].header:
        yield from lines(Text(rows.columns[0].header, "dim"), width)
    for number, row in enumerate(rows.rows, start=1):
        title = row[0] if any(style for _, style in row[0].pieces) else Text(row[0].plain, "title", wrap=row[0].wrap)
        yield from (part for line in title.lines() for part in wrap(line, width, hanging=2))
        for column, cell in zip(rows.columns[1:], row[1:], strict=True):
            label = f"{column.header}: " if column.header and cell.plain else ""
            for line in cell.lines() if cell.plain else ():
                yield from wrap(
                    Text.assemble("  ", (label, "dim"), line, wrap=line.wrap), width, hanging=4 if label else 2
                )
        yield from _details(rows, number, width)


def _details(rows: Rows, number: int, width: int | None) -> Iterator[Text]:
    for detail in rows.details.get(number, ()):
        yield from lines(detail, width)
