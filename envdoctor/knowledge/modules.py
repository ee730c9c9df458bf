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


def spans_of_module(module: str) -> tuple[Span, ...]:
    """The releases with a module; none if all or none of those that have its package have it."""
    top, _, rest = module.partition(".")
    return next(_find(top, "modules", rest), ()) if rest else ()


def spans_of_module_name(module: str, name: str) -> tuple[Span, ...]:
    """The releases whose module has a name; none if all or none of those that have the module have it."""
    top, _, rest = module.partition(".")
    prefix = f"{rest}:"
    for spans, item in _items(top, "names", prefix):
        if item.startswith(prefix) and name in item.removeprefix(prefix).split(","):
            return tuple(each for each in spans if not is_still_found(module, name, each.next))
    return ()


def _find(top: str, section: str, wanted: str) -> Iterator[tuple[Span, ...]]:
    return (spans for spans, item in _items(top, section, wanted) if item == wanted)


def _items(top: str, section: str, part: str) -> Iterator[tuple[tuple[Span, ...], str]]:
    """The members of the rows that contain a text, each with its periods."""
    if top not in tables():
        return
    table = read_table(f"modules/{top}.toml")
    for line in table[section].splitlines():
        if part in line:
            periods, _, members = line.partition(" | ")
            spans = tuple(_parse_span(table["package"], each) for each in periods.split())
            yield from ((spans, member) for member in members.split())


def _parse_span(package: str, period: str) -> Span:
    start, _, end = period.partition("..")
    before, _, first = start.rpartition("<")
    last, _, following = end.partition(">")
    return Span(package, before, first, last, following)
