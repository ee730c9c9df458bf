"""Calls that a release of a package has changed in a way which stops the programs with them: call_changes.toml."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from types import GenericAlias
from typing import TypeVar, cast

from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies

_TABLE = "call_changes.toml"


class CallChange(TableRow, frozen=True, kw_only=True):
    """A function or a class whose calls differ from the release `first` on; `last` is the last release before it.

    `change` is what makes the code work with both, or with the newer one.
    """

    package: str
    names: str
    first: str
    last: str
    change: str = ""

    def is_in(self, version: str) -> bool:
        """Whether a release has the change."""
        return satisfies(version, f">={self.first}") is True


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


class PassedArgument(CallChange, frozen=True, kw_only=True):
    """A class that passes an argument to a method, which a class that derives from it can override.

    A class that overrides the method `caller` as well does not get it.
    """

    method: str
    argument: str
    caller: str


class RequiredArgument(CallChange, frozen=True, kw_only=True):
    """A function that stops without this argument."""

    argument: str
    position: int  # from 1 on


class RefusedCall(CallChange, frozen=True, kw_only=True):
    """A function that only raises an exception."""

    exception: str


R = TypeVar("R", bound=CallChange)
_KEYS: Mapping[type[CallChange], str] = {
    ReturnedValues: "returned",
    PositionalArguments: "positional",
    RemovedArguments: "removed_argument",
    RefusedMethods: "refused_method",
    PassedArgument: "passed_argument",
    RequiredArgument: "required_argument",
    RefusedCall: "refused_call",
}


def find_changes(kind: type[R], name: str) -> tuple[R, ...]:
    """The changes of a function or class by one of its dotted names, which can be a pattern: `lib.*Model.load`."""
    found = _find_changes(kind, name)  # the cache loses the type
    return cast("tuple[R, ...]", found)


@cache  # a checkout has thousands of calls, and each is compared with each installed package
def _find_changes(kind: type[CallChange], name: str) -> tuple[CallChange, ...]:
    rows = _changes(kind)
    patterns = (found for pattern, found in rows.items() if "*" in pattern and fnmatchcase(name, pattern))
    return (*rows.get(name, ()), *chain.from_iterable(patterns))


@cache
def changing_packages(name: str) -> frozenset[str]:
    """The packages that have changed a function or class."""
    return frozenset(row.package for kind in _KEYS for row in find_changes(kind, name))


@cache
def removals_of_argument(function: str, argument: str) -> tuple[RemovedArguments, ...]:
    """The packages whose function or class, by its last name, no longer has an argument: `Trainer`, `gpus`."""
    rows = dict.fromkeys(
        row
        for name, found in _changes(RemovedArguments).items()
        if name.rpartition(".")[2] == function
        for row in found
    )
    return tuple(row for row in rows if argument in row.arguments.split())


def functions_without(argument: str) -> tuple[str, ...]:
    """The last names of the functions and classes that no longer have an argument: `Trainer` for `gpus`."""
    rows = (row for found in _changes(RemovedArguments).values() for row in found)
    named = (name for row in rows if argument in row.arguments.split() for name in row.names.split())
    return tuple(dict.fromkeys(name.rpartition(".")[2] for name in named))


@cache
def _changes(kind: type[R]) -> dict[str, tuple[R, ...]]:
    """The rows of each name."""
    rows = load_table(_TABLE, cast("type[tuple[R, ...]]", GenericAlias(tuple, (kind, ...))), _KEYS[kind])
    found: dict[str, tuple[R, ...]] = {}
    for row in rows:
        for name in row.names.split():
            found[name] = (*found.get(name, ()), row)
    return found
