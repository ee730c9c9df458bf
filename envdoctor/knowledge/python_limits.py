"""The newest releases that older Python versions can install: python_limits.toml."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.published import PublishedRelease
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies


class PythonLimit(TableRow, frozen=True, kw_only=True):
    """The newest release of some packages for a Python version; of those in `none` no release supports it."""

    python: str
    newest: str
    none: tuple[str, ...] = ()


@cache
def _newest(python: str) -> dict[str, str]:
    rows = load_table("python_limits.toml", tuple[PythonLimit, ...], "limit")
    words = [word for row in rows if row.python == python for word in row.newest.split()]
    return dict(word.split("==") for word in words)


def can_install(package: str, version: str, python: str) -> bool:
    """Whether Requires-Python of a release permits a Python version, as far as the table limits the package."""
    minor = ".".join(python.split(".")[:2])
    newest = _newest(minor).get(package, "")
    return not newest or satisfies(version, f"<={newest}") is not False


def supports_python(package: str, release: PublishedRelease, python: str) -> bool:
    """Whether neither the table nor the wheels of a release are for newer Pythons only."""
    return can_install(package, release.version, python) and not release.is_for_newer_pythons(python)
