"""Programs that images lack: image_programs.toml."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.tables import TableRow, load_table


class ImageProgram(TableRow, frozen=True, kw_only=True):
    """A program, the kinds of images that lack it, and what brings it."""

    name: str
    images: frozenset[str]  # bare, python, pytorch
    package: str | None = None  # of apt: the name of the program without one; empty if apt has none
    provided: str = ""
    instead: str = ""

    @property
    def apt(self) -> str:
        """The package of apt; empty if apt has none."""
        return self.name if self.package is None else self.package


@cache
def image_programs() -> dict[str, ImageProgram]:
    """All rows by the name of the program."""
    rows = load_table("image_programs.toml", tuple[ImageProgram, ...], "program")
    return {row.name: row for row in rows}
