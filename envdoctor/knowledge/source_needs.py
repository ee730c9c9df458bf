"""What the build of a source archive needs of the system: source_needs.toml."""

from __future__ import annotations

from envdoctor.knowledge.tables import TableRow, load_table


class SourceNeed(TableRow, frozen=True, kw_only=True):
    """The libraries and programs that the build of a package needs."""

    package: str
    needs: str  # in words
    apt: tuple[str, ...]
    provided: str  # pattern of a text that brings them
    conda: tuple[str, ...] = ()  # packages of conda that bring them


def source_need(package: str) -> SourceNeed | None:
    """The row of a package; None without one."""
    rows = load_table("source_needs.toml", tuple[SourceNeed, ...], "source")
    return next((row for row in rows if row.package == package), None)


def needs_of_build(package: str) -> str:
    """What must be installed before the build of a package, in words; empty if nothing is known."""
    row = source_need(package)
    return f"first install {row.needs} (Debian, Ubuntu: {' '.join(row.apt)})" if row else ""
