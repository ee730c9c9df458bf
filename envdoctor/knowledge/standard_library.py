"""Names of the standard library that a Python version no longer has, or does not have yet: standard_library.toml."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies


class LibraryChange(TableRow, frozen=True, kw_only=True):
    """The modules and names that a Python version removed and added."""

    version: str
    released: str  # day of x.y.0
    removed: str = ""
    added: str = ""


@cache
def _changes() -> tuple[LibraryChange, ...]:
    return load_table("standard_library.toml", tuple[LibraryChange, ...], "python")


@cache
def removed_names(python: str) -> dict[str, LibraryChange]:
    """The names that a Python version no longer has, with the version that removed them."""
    rows = (row for row in _changes() if satisfies(python, f">={row.version}"))
    return {name: row for row in rows for name in row.removed.split()}


@cache
def later_names(python: str) -> dict[str, LibraryChange]:
    """The names that a Python version does not have yet, with the version that added them."""
    rows = (row for row in _changes() if satisfies(python, f"<{row.version}"))
    return {name: row for row in rows for name in row.added.split()}


def find_name(names: dict[str, LibraryChange], module: str, name: str) -> tuple[str, LibraryChange] | None:
    """The entry for an import of a module, or of a name of it; None if both exist."""
    for dotted in (f"{module}.{name}" if name else module, module, module.partition(".")[0]):
        if dotted in names:
            return dotted, names[dotted]
    return None
