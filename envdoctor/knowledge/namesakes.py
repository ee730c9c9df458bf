"""Packages whose module has the name of a better known one: namesakes.toml."""

from __future__ import annotations

from envdoctor.knowledge.tables import TableRow, load_table


class Namesake(TableRow, frozen=True, kw_only=True):
    """A package, its module, what installs the module that code means, and names that only that module has."""

    package: str
    module: str
    meant: str
    names: str

    def lacks(self, name: str) -> bool:
        """Whether the module of the package does not have a name: `load_model`, or a submodule."""
        return self.names == "*" or name.partition(".")[0] in self.names.split()


def namesakes() -> tuple[Namesake, ...]:
    """All rows."""
    return load_table("namesakes.toml", tuple[Namesake, ...], "namesake")
