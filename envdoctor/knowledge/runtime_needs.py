"""What packages need at their import or use and no requirement brings: runtime_needs.toml."""

from __future__ import annotations

from functools import cache
from typing import Literal

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table


class RuntimeLibrary(TableRow, frozen=True, kw_only=True):
    """A library or a program of the system that packages load or start."""

    packages: tuple[str, ...]
    unless: frozenset[str] = frozenset()  # packages that bring it
    needs: str
    apt: tuple[str, ...]
    when: Literal["import", "use"]
    images: frozenset[str]  # that lack it: bare, python, pytorch
    is_loaded_by_others: bool = False  # what requires a package of the row imports it as well
    has_compiler: bool = False  # images with a C compiler have it
    module: str = ""  # whose import needs it, where a usual machine lacks it as well
    provided: str


class RuntimeModule(TableRow, frozen=True, kw_only=True):
    """A package whose import needs one of several others, of which it requires none."""

    package: str
    first: str  # release from which it requires none
    modules: frozenset[str]
    instead: str


class RuntimeNeeds(Record, frozen=True, kw_only=True):
    """The tables of runtime_needs.toml."""

    system: tuple[RuntimeLibrary, ...]
    module: tuple[RuntimeModule, ...]


@cache
def runtime_needs() -> RuntimeNeeds:
    """The content of runtime_needs.toml."""
    return load_table("runtime_needs.toml", RuntimeNeeds)
