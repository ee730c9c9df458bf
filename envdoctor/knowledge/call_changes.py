"""Calls that a release of a package has changed in a way which stops the programs with them: call_changes.toml."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TypeVar

from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies

_TABLE = "call_changes.toml"


class CallChange(TableRow, frozen=True, kw_only=True):
    """A function or a class whose calls differ from the release `first` on; `last` is the last release before it."""

    package: str
    names: str
    first: str
    last: str

    def is_in(self, version: str) -> bool:
        """Whether a release has the change."""
        return satisfies(version, f">={self.first}") is True

    def precedes(self, version: str) -> bool:
        """Whether a release is certainly from before the change."""
        return satisfies(version, f"<={self.last}") is True


class ReturnedValues(CallChange, frozen=True, kw_only=True):
    """A function that returns another number of values."""

    before: int
    after: int


class PositionalArguments(CallChange, frozen=True, kw_only=True):
    """A function that accepts fewer arguments by their position."""

    accepted: int


class RemovedArguments(CallChange, frozen=True, kw_only=True):
    """A class or function that no longer has these arguments, and has no `**kwargs`."""

    arguments: str


class RefusedMethods(CallChange, frozen=True, kw_only=True):
    """A class that stops programs in which a class that derives from it has one of these methods."""

    methods: str


class RequiredArgument(CallChange, frozen=True, kw_only=True):
    """A function that stops without this argument."""

    argument: str
    position: int  # from 1 on


class RefusedCall(CallChange, frozen=True, kw_only=True):
    """A function that only raises an exception."""

    exception: str


R = TypeVar("R", bound=CallChange)


@cache
def returned_values(name: str) -> ReturnedValues | None:
    """The row of a function by one of its dotted names."""
    return _row(load_table(_TABLE, tuple[ReturnedValues, ...], "returned"), name)


@cache
def positional_arguments(name: str) -> PositionalArguments | None:
    """The row of a function by one of its dotted names."""
    return _row(load_table(_TABLE, tuple[PositionalArguments, ...], "positional"), name)


@cache
def removed_arguments(name: str) -> RemovedArguments | None:
    """The row of a class or function by one of its dotted names."""
    return _row(load_table(_TABLE, tuple[RemovedArguments, ...], "removed_argument"), name)


@cache
def refused_methods(name: str) -> RefusedMethods | None:
    """The row of a class by one of its dotted names."""
    return _row(load_table(_TABLE, tuple[RefusedMethods, ...], "refused_method"), name)


@cache
def required_argument(name: str) -> RequiredArgument | None:
    """The row of a function by one of its dotted names."""
    return _row(load_table(_TABLE, tuple[RequiredArgument, ...], "required_argument"), name)


@cache
def refused_call(name: str) -> RefusedCall | None:
    """The row of a function by one of its dotted names."""
    return _row(load_table(_TABLE, tuple[RefusedCall, ...], "refused_call"), name)


def _row(rows: Iterable[R], name: str) -> R | None:
    return next((row for row in rows if name in row.names.split()), None)
