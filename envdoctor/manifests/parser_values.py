"""The values that `program_parsers` gives to names and expressions of a program; None is an unknown value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from envdoctor.manifests.parser_options import Option, Parser


class Scope:
    """Names and their values in a module or a function. `parent` is the scope around it."""

    def __init__(self, file: str, parent: Scope | None = None, *, is_program: bool = False) -> None:
        self.file = file
        self.parent = parent
        self.values: dict[str, object] = {}
        self.global_names: set[str] = set()
        self.is_program: bool = is_program if parent is None else parent.is_program

    @property
    def module(self) -> Scope:
        """The scope of the module."""
        return self.parent.module if self.parent else self

    def find(self, name: str) -> object:
        """The value of a name."""
        if name in self.values:
            return self.values[name]
        return self.parent.find(name) if self.parent else None

    def bind(self, name: str, value: object, *, certain: bool) -> object:
        """Give a value to a name. After a condition both values are possible, and none is known."""
        values = self.module.values if name in self.global_names else self.values
        if not certain and name in values and (type(values[name]) is not type(value) or values[name] != value):
            old = values[name]
            values[name] = None
            return old
        values[name] = value
        return None

    def forget(self, name: str) -> None:
        """Make the value of a name unknown."""
        if name in self.values or self.parent is None:
            self.values[name] = None
        else:
            self.parent.forget(name)


class Literal(NamedTuple):
    """A constant of the source."""

    value: object


class External(NamedTuple):
    """A module of another project, or a name in it: `argparse.ArgumentParser`."""

    name: str


class OwnModule(NamedTuple):
    """A module of the checkout."""

    path: str
    name: str


class Routine(NamedTuple):
    """A function with its scope, and the object to which a method is bound."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    scope: Scope
    bound: object = None
    owner: OwnClass | None = None


class OwnClass(NamedTuple):
    """A class of the checkout."""

    node: ast.ClassDef
    scope: Scope


class Parents(NamedTuple):
    """`super()` in a method."""

    routine: Routine


class Instance:
    """An object of a class of the checkout."""

    def __init__(self, owner: OwnClass) -> None:
        self.owner = owner
        self.values: dict[str, object] = {}


class Items(NamedTuple):
    """A list or a tuple of the source."""

    elements: tuple[object, ...]


class ParserMethod(NamedTuple):
    """A method of a parser."""

    parser: Parser
    name: str


class Arguments(NamedTuple):
    """The arguments of a call. `is_open`: there can be more."""

    positional: tuple[object, ...]
    named: dict[str, object]
    is_open: bool

    def value(self, name: str) -> object:
        """The constant of a named argument; None for others."""
        found = self.named.get(name)
        return found.value if isinstance(found, Literal) else None


def parsers_in(value: object) -> Iterator[Parser]:
    """The parsers that a value contains."""
    if isinstance(value, Parser):
        yield value
    elif isinstance(value, ParserMethod):
        yield value.parser
    elif isinstance(value, Items):
        for each in value.elements:
            yield from parsers_in(each)
    elif isinstance(value, Instance):
        yield from (each for each in value.values.values() if isinstance(each, Parser))


def constants(value: object) -> tuple[object, ...]:
    """The elements of a list of constants; none for others."""
    elements = value.elements if isinstance(value, Items) else ()
    found = tuple(each.value for each in elements if isinstance(each, Literal))
    return found if len(found) == len(elements) else ()


_WITHOUT_VALUE = frozenset({
    "store_true", "store_false", "store_const", "append_const", "count", "help", "version", "BooleanOptionalAction",
})  # fmt: skip


def option_of(arguments: Arguments, place: str, *, certain: bool) -> Option | None:
    """The option of `add_argument`; None if its names are not known. A positional argument has no names."""
    texts = [each.value if isinstance(each, Literal) else None for each in arguments.positional]
    if (arguments.is_open and not texts) or not all(isinstance(each, str) for each in texts):
        return None
    names = [str(each) for each in texts if str(each).startswith("-")]
    action = arguments.named.get("action")
    is_boolean = isinstance(action, External) and action.name.endswith("BooleanOptionalAction")
    if is_boolean:
        names += [f"--no-{each[2:]}" for each in names if each.startswith("--")]
    takes_value = not is_boolean and arguments.value("action") not in _WITHOUT_VALUE
    kind = arguments.named.get("type")
    is_custom = action is not None and not isinstance(action, Literal)
    is_text = kind is None or (isinstance(kind, External) and kind.name in ("str", "int"))
    choices = constants(arguments.named.get("choices"))
    is_judged = choices and is_text and not is_custom and takes_value and not arguments.is_open
    number = kind.name if isinstance(kind, External) and kind.name in ("int", "float") else ""
    return Option(
        tuple(names),
        place,
        takes_value,
        _nargs(arguments) or ("?" if is_custom or arguments.is_open else ""),  # its own class can take none
        tuple(map(str, choices)) if is_judged else (),
        certain and arguments.value("required") is True,
        "" if is_custom or not takes_value or arguments.is_open else number,
    )


def _nargs(arguments: Arguments) -> str:
    """The number of values; that of all further words if it is not known."""
    if "nargs" not in arguments.named:
        return ""
    value = arguments.named["nargs"]
    if isinstance(value, Literal):
        return "" if value.value is None else str(value.value)
    name = value.name.rpartition(".")[2] if isinstance(value, External) else ""
    return {"OPTIONAL": "?", "ZERO_OR_MORE": "*", "ONE_OR_MORE": "+"}.get(name, "...")


class Reader(Protocol):
    """What reads the code of a program."""

    place: str  # file and line of the current statement
    parsers: list[Parser]

    def bases(self, owner: OwnClass) -> list[object]:
        """The base classes of a class."""
