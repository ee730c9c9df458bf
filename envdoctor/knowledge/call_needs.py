"""Packages and data that a call needs, and that the requirements of its package do not name: call_needs.toml."""

from __future__ import annotations

from functools import cache

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table


class CallNeed(TableRow, frozen=True, kw_only=True):
    """A call that raises an exception without one of several packages."""

    package: str  # that has the function
    calls: tuple[str, ...]  # patterns of dotted names; `.name` is a method of any object
    argument: str = ""
    position: int = -1  # of the argument
    value: str = ""  # pattern of the expression of the argument; any but None and False without it
    unless: str = ""  # an argument that selects something else
    needs: tuple[str, ...]  # packages of which one is sufficient, the usual one first
    releases: str = ""  # of the package, for which the row holds


class CallData(TableRow, frozen=True, kw_only=True):
    """A call that reads data which a step or the code has to download first."""

    package: str
    calls: tuple[str, ...]
    position: int = -1  # of the argument with the name of the data
    value: str = ""  # pattern of its expression; its first group is the name of the data
    unless: str = ""
    data: str = ""  # its name, where no argument has it
    download: str  # command with {}
    brought: str  # pattern of what downloads it, with {}
    releases: str = ""


class LauncherPackage(TableRow, frozen=True, kw_only=True):
    """A program that starts others, and its package, or the one that an option of it needs."""

    program: str
    option: str = ""
    config: str = ""  # pattern of a file of `--config_file` that selects the same as the option
    package: str


class CallNeeds(Record, frozen=True, kw_only=True):
    """The tables of call_needs.toml."""

    call: tuple[CallNeed, ...]
    data: tuple[CallData, ...]
    launcher: tuple[LauncherPackage, ...]


@cache
def call_needs() -> CallNeeds:
    """The content of call_needs.toml."""
    return load_table("call_needs.toml", CallNeeds)
