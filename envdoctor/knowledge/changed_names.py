"""Names that a release of a widely used package removed or added, and that the tables of modules do not have."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.names import Span
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies


class Removal(TableRow, frozen=True, kw_only=True):
    """Names of a package that `last` has and `next` does not."""

    package: str
    last: str
    next: str
    names: str  # MODULE.NAME, MODULE, CLASS.ATTRIBUTE or FUNCTION(ARGUMENT), separated by blanks
    cause: str = ""  # if it is not that of a library that is too new
    without: str = ""  # the last release without the names, if `again` has them again
    again: str = ""
    symptom: str = ""  # that explains the message of a missing name

    def is_between(self, first: str, later: str) -> bool:
        """Whether the names were removed after one release, and a later one does not have them."""
        again = f",<{self.again}" if self.again else ""
        return satisfies(first, f"<={self.last}") is True and satisfies(later, f">={self.next}{again}") is True


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


def change_of(name: str) -> Span | None:
    """The releases that have a removed or added name; None if it is not in the table, or if a symptom explains it."""
    removed = _removals().get(name)
    return None if removed and removed.symptom else next(iter(periods_of(name)), None)


def periods_of(name: str) -> tuple[Span, ...]:
    """The periods of releases that have a removed or added name; none if it is not in the table."""
    if removed := _removals().get(name):
        last = Span(removed.package, "", "", removed.last, removed.next)
        return (last, Span(removed.package, removed.without, removed.again, "", "")) if removed.again else (last,)
    added = _additions().get(name)
    return (Span(added.package, added.before, added.first, "", ""),) if added else ()


@cache
def classes_with_changes(package: str) -> frozenset[str]:
    """The classes of a package of which a release removed attributes: `TfidfVectorizer`."""
    owners = (name.partition(".")[0] for name, row in _removals().items() if row.package == package and "." in name)
    return frozenset(owner for owner in owners if owner[:1].isupper())
