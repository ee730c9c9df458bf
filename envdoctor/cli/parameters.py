"""The parameters of a command line, from the fields of request records, and the request from their values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, get_args, get_origin

from msgspec import NODEFAULT

from envdoctor.core.errors import BadInput
from envdoctor.core.options import Argument, Option, record_fields
from envdoctor.core.record import Record

POSITIONAL = "_argument"  # suffix of the parameter of an option's positional argument


class Parameter(Record, frozen=True, kw_only=True):
    """An option or an argument."""

    name: str  # of the request's field
    help: str
    flags: tuple[str, ...] = ()  # such as --quiet and -q; empty for an argument
    metavar: str = ""
    kind: type = str
    default: Any = None
    required: bool = False
    repeats: bool = False
    minimum: int | None = None
    maximum: int | None = None
    rest: bool = False  # its values are also the words after `--`
    prefix: str = ""  # put before its values

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the option."""
        return self.kind is not bool

    @property
    def label(self) -> str:
        """The name in messages."""
        return self.flags[0] if self.flags else self.metavar.strip("[].")

    @property
    def usage(self) -> str:
        """An argument in the usage line."""
        if self.metavar.startswith("["):
            return self.metavar
        return f"{{{self.metavar}}}" if self.required else f"[{self.metavar}]"

    @property
    def choices(self) -> list[str]:
        """The valid values; empty if others are valid too."""
        return [each.value for each in self.kind] if issubclass(self.kind, Enum) else []

    @property
    def range(self) -> str:
        """The valid numbers, such as `1<=x<=8`; empty for all."""
        if self.minimum is None:
            return "" if self.maximum is None else f"x<={self.maximum}"
        return f"x>={self.minimum}" if self.maximum is None else f"{self.minimum}<=x<={self.maximum}"

    @property
    def valid_values(self) -> str:
        """The values that `convert` accepts, for an error message."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind in (int, float):
            return f"{self._kind_of_number}, {self.range}" if self.range else self._kind_of_number
        return self.help

    @property
    def _kind_of_number(self) -> str:
        return "an integer" if self.kind is int else "a number"

    @property
    def shown_default(self) -> str:
        """The default in the help; empty for none, and for 0, whose meaning is in the help text."""
        return str(getattr(self.default, "value", self.default)) if self.default else ""

    def convert(self, word: str) -> Any:
        """The value of a word. Raises ValueError."""
        if self.choices:
            if word not in self.choices:
                raise ValueError(f"{word!r} is not a valid value")
            return self.kind(word)
        if self.kind in (int, float):
            return self._number(word)
        if not word and not self.default:  # valid only for an option whose default is not empty, as --hub
            raise ValueError("it is empty; leave it out, or give a value")
        return word

    def _number(self, word: str) -> float:
        try:
            value: float = self.kind(word)
        except ValueError:
            raise ValueError(f"{word!r} is not {self._kind_of_number}") from None
        too_small = self.minimum is not None and value < self.minimum
        too_large = self.maximum is not None and value > self.maximum
        if too_small or too_large:
            raise ValueError(f"{value} is out of range")
        return value


HELP = Parameter(name="help", help="Show this message and exit.", flags=("--help", "-h"), kind=bool)


def record_parameters(record: type[Record]) -> Iterator[Parameter]:
    """The parameters of a request record's fields, in their order."""
    for field in record_fields(record):
        if _is_record(field.type):
            yield from record_parameters(field.type)
            continue
        kind, declaration = get_args(field.type)
        repeats = get_origin(kind) is tuple
        required = field.default is NODEFAULT
        values: dict[str, Any] = {"kind": get_args(kind)[0] if repeats else kind, "repeats": repeats}
        default = None if required or repeats else field.default
        if isinstance(declaration, Argument):
            yield Parameter(
                name=field.name, help=declaration.help, metavar=declaration.metavar, default=default,
                required=required, **values,
            )  # fmt: skip
            continue
        text = declaration.help
        if metavar := declaration.argument:
            shown = f"[{metavar}]..." if repeats else f"[{metavar}]"
            yield Parameter(name=field.name + POSITIONAL, help=text, metavar=shown, **values)
            text, default, required = f"The same as {metavar}.", None, False
        yield Parameter(
            name=field.name, help=text, flags=tuple(filter(None, (declaration.flag, declaration.short))),
            metavar=declaration.metavar or "", default=default, required=required, minimum=declaration.minimum,
            maximum=declaration.maximum, rest=declaration.rest, **values,
        )  # fmt: skip
        if other := declaration.other:
            yield Parameter(
                name=field.name, help=other.help, flags=(other.flag,), metavar=other.metavar or "",
                prefix=other.prefix, **values,
            )  # fmt: skip


def make_request(record: type[Record], values: Mapping[str, Any]) -> Any:
    """Create a request record from the values that were given. Raises BadInput."""
    arguments = {}
    for field in record_fields(record):
        if _is_record(field.type):
            arguments[field.name] = make_request(field.type, values)
            continue
        declaration, value = get_args(field.type)[1], values.get(field.name)
        if isinstance(declaration, Option) and declaration.argument:
            value = _merge(declaration, values.get(field.name + POSITIONAL), value)
            if not value and field.default is NODEFAULT:
                raise _missing(record, declaration)
        if value not in (None, ()):
            arguments[field.name] = value
    return record(**arguments)


def _merge(option: Option, positional: Any, value: Any) -> Any:
    """The value of a positional argument and its option. BadInput if they differ; lists are combined."""
    if isinstance(positional, tuple):
        return (*positional, *(value or ()))
    if positional and value and positional != value:
        raise BadInput(
            f"{option.argument} {positional} and {option.flag} {value} differ",
            expected=f"{option.argument} or {option.flag}, not both",
            hint=f"leave {option.flag} out",
        )
    return positional or value


# The command that lists the values of an argument; its example names only one of them.
LISTS = {"PROFILE": "envdoctor profiles", "RECIPE": "envdoctor recipes"}


def _missing(record: type[Record], option: Option) -> BadInput:
    example = re.search(r"Example: (.+)", record.__doc__ or "")
    return BadInput(
        f"{option.argument} is missing",
        expected=f"{option.argument}, or {option.flag} {option.metavar}",
        hint=LISTS.get(option.argument, example[1] if example else ""),
    )


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)
