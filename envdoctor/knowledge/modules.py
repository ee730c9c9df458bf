"""Modules of libraries, and names in them, that only some releases have: modules/TOP_LEVEL_MODULE.toml.

A row has the periods with its members, between the nearest releases without them, such as `1.2<1.3..1.5>1.6`. An
empty start or end means all older or newer releases. `modules` lists modules without their top-level one. `names`
lists `MODULE:NAME,NAME`; releases without the module are not compared, and private names have no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from envdoctor.knowledge.fast_names import is_still_found
from envdoctor.knowledge.names import Span
from envdoctor.knowledge.tables import FOLDER, read_table


@cache
def tables() -> frozenset[str]:
    """The top-level modules with a table."""
    return frozenset(path.stem for path in FOLDER.glob("modules/*.toml"))


def sources_of_rows() -> Iterator[dict[str, str]]:
    """The source and the date of each row of all tables."""
    for top in sorted(tables()):
        table = read_table(f"modules/{top}.toml")
        for _ in (*table["modules"].splitlines(), *table["names"].splitlines()):
            yield {"source": table["source"], "date": table["date"]}


@cache
def spans_of_module(module: str) -> tuple[Span, ...]:
    """The releases with a module; none if all or none of those that have its package have it."""
    top, _, rest = module.partition(".")
    return next((_spans_of(top, line) for line, more in _rows(top, "modules", rest) if not more), ()) if rest else ()


@cache
def spans_of_module_name(module: str, name: str) -> tuple[Span, ...]:
    """The releases whose module has a name; none if all or none of those that have the module have it."""
    top, _, rest = module.partition(".")
    for line, names in _rows(top, "names", f"{rest}:"):
        if name in names.split(","):
            return tuple(each for each in _spans_of(top, line) if not is_still_found(module, name, each.next))
    return ()


def _rows(top: str, section: str, start: str) -> Iterator[tuple[str, str]]:
    """The rows that have a member with this start, each with the rest of the member."""
    for line in _lines(top, section):
        for found in line.split(f" {start}")[1:]:  # a row can have a thousand members
            yield line, found.partition(" ")[0]


@cache
def _lines(top: str, section: str) -> tuple[str, ...]:
    return tuple(read_table(f"modules/{top}.toml")[section].splitlines()) if top in tables() else ()


def _spans_of(top: str, line: str) -> tuple[Span, ...]:
    package = read_table(f"modules/{top}.toml")["package"]
    return tuple(_parse_span(package, each) for each in line.partition(" | ")[0].split())


def _parse_span(package: str, period: str) -> Span:
    start, _, end = period.partition("..")
    before, _, first = start.rpartition("<")
    last, _, following = end.partition(">")
    return Span(package, before, first, last, following)
