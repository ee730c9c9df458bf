"""Names that a release of a widely used package removed or added, and that the tables of modules do not have."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.names import Span
from envdoctor.knowledge.tables import TableRow, load_table


class Removal(TableRow, frozen=True, kw_only=True):
    """Names of a package that `last` has and `next` does not."""

    package: str
    last: str
    next: str
    names: str  # MODULE.NAME, MODULE, CLASS.ATTRIBUTE or FUNCTION(ARGUMENT), separated by blanks
    cause: str = ""  # if it is not that of a library that is too new
    without: str = ""  # the last release without the names, if `again` has them again
    again: str = ""


class Addition(TableRow, frozen=True, kw_only=True):
    """Names of a package that `before` lacks and `first` has; releases between them can have them."""

    package: str
    before: str
    first: str
    names: str


@cache
def _removals() -> dict[str, Removal]:
    rows = load_table("changed_names.toml", tuple[Removal, ...], "removal")
    return {name: row for row in rows for name in row.names.split()}


@cache
def _additions() -> dict[str, Addition]:
    rows = load_table("changed_names.toml", tuple[Addition, ...], "addition")
    return {name: row for row in rows for name in row.names.split()}


def removal_of(name: str) -> Removal | None:
    """The row of a removed name, `PIL.Image.ANTIALIAS`; None if it is not in the table."""
    return _removals().get(name)


def periods_of(name: str) -> tuple[Span, ...]:
    """The periods of releases that have a removed or added name; none if it is not in the table."""
    change, row = change_of(name), _removals().get(name)
    again = (Span(row.package, row.without, row.again, "", ""),) if row and row.again else ()
    return (change, *again) if change else ()


def change_of(name: str) -> Span | None:
    """The releases that have a removed or added name; None if it is not in the table."""
    if removed := _removals().get(name):
        return Span(removed.package, "", "", removed.last, removed.next)
    added = _additions().get(name)
    return Span(added.package, added.before, added.first, "", "") if added else None
