"""Names that a release of a widely used package removed, and that the tables of modules do not have."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.tables import TableRow, load_table


class Removal(TableRow, frozen=True, kw_only=True):
    """Names of a package that `last` has and `next` does not."""

    package: str
    last: str
    next: str
    names: str  # MODULE.NAME, MODULE, CLASS.ATTRIBUTE or FUNCTION(ARGUMENT), separated by blanks
    cause: str = ""  # if it is not that of a library that is too new


@cache
def _removals() -> dict[str, Removal]:
    rows = load_table("removed_names.toml", tuple[Removal, ...], "removal")
    return {name: row for row in rows for name in row.names.split()}


def removal_of(name: str) -> Removal | None:
    """The row of a name, `PIL.Image.ANTIALIAS`; None if it is not in the table."""
    return _removals().get(name)
