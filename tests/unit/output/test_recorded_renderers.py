"""The human output of every result, for records with a value in each field and for records without optional values.

The values have no meaning: the field's name for each text, 3 for each number, 5 GB for each size. What is printed of
them, in which order and unit, is compared with the last commit.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from support.recorded_results import assert_as_recorded, assert_text_as_recorded

from envdoctor.commands.registry import COMMANDS, result_types
from envdoctor.core.records import Fact, Machine
from envdoctor.machine.recorded import read_recorded
from envdoctor.output.human import parts_of
from envdoctor.output.layout import lines, plain_text
from envdoctor.output.text import Text

PHASES = {"peak_phase": "update", "phases": "load"}  # of a memory plan, whose output names them
NARROW = 64  # columns
LONG, LONG_TEXT = 50, "".join(f"{number:03d}." for number in range(100))
SIZE = re.compile(r"bytes|size|memory|free|download|total|stored|reclaimed")  # fields in bytes


def example(kind: Any, name: str, *, full: bool) -> Any:
    """A value of a type: with one element in each list if `full`, else as empty as the type permits."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        optional = type(None) in arguments and not full
        return None if optional else example(arguments[0], name, full=full)
    if origin is Literal:
        return arguments[0 if full else -1]
    if origin is Fact:
        return Fact(value=example(arguments[0], name, full=True), source=f"{name} source")
    if origin in (tuple, list, dict):
        return collection(origin, arguments, name, full=full)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return struct(kind, full=full)
    number = 5 * 10**9 if SIZE.search(name) else 3
    return {str: PHASES.get(name, name), int: number, float: 12.25, bool: full}.get(kind, name)


def collection(kind: Any, arguments: tuple[Any, ...], name: str, *, full: bool) -> Any:
    """A tuple, list or dictionary, with at most one element."""
    if kind is tuple and arguments[1:] != (...,):
        return tuple(example(each, name, full=full) for each in arguments)
    values = [example(each, name, full=full) for each in arguments if each is not ...] if full else []
    return dict([values] if full else []) if kind is dict else kind(values)


def struct(kind: type[msgspec.Struct], *, full: bool) -> Any:
    """A record. The machine is a recorded one: its rows have a meaning."""
    if kind is Machine:
        return read_recorded("h200")
    hints = get_type_hints(kind)
    fields = [field for field in msgspec.structs.fields(kind) if full or field.required]
    return kind(**{field.name: example(hints[field.name], field.name, full=full) for field in fields})


def records() -> list[type]:
    """The result records of all commands."""
    found = {record.__qualname__: record for command in COMMANDS for record in result_types(command.name)}
    return [found[name] for name in sorted(found)]


def screen(record: Any) -> str:
    """The output in a pipe."""
    return plain_text(parts_of(record))


def styled_screen(record: Any, width: int | None) -> str:
    """The output on a terminal or, without a width, in a pipe; each styled text as `[style|text]`."""
    try:
        return "".join(f"{styled(line)}\n" for part in parts_of(record) for line in lines(part, width))
    except (IndexError, KeyError, ValueError):  # of a record whose values contradict one another
        return ""


def styled(line: Text) -> str:
    return "".join(f"[{style}|{text}]" if style else text for text, style in line.pieces)


@pytest.mark.parametrize("full", [True, False], ids=["full", "empty"])
def test_output_is_as_recorded(full: bool) -> None:
    screens = [f"# {kind.__qualname__}\n{screen(struct(kind, full=full))}" for kind in records()]
    assert_text_as_recorded(f"screens/{'full' if full else 'empty'}-records.txt", "\n".join(screens))


def test_styles_and_line_breaks_are_as_recorded() -> None:
    screens = [f"# {kind.__qualname__}\n{styled_screen(struct(kind, full=True), NARROW)}" for kind in records()]
    assert_text_as_recorded("screens/styled-records.txt", "\n".join(screens))


def variants(record: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The record with one field changed: none, empty, zero, long, the other truth value, or another choice."""
    hints = get_type_hints(type(record))
    for field in msgspec.structs.fields(record):
        value, where = getattr(record, field.name), f"{path}{field.name}"
        for other in other_values(hints[field.name], value):
            shown = "long" if is_long(other) else repr(other)
            yield f"{where}={shown}", msgspec.structs.replace(record, **{field.encode_name: other})
        inner = value[0] if isinstance(value, tuple | list) and value else value
        if isinstance(inner, msgspec.Struct) and not isinstance(inner, Machine | Fact):
            for name, changed in variants(inner, f"{where}."):
                yield (
                    name,
                    msgspec.structs.replace(
                        record, **{field.name: changed if inner is value else type(value)([changed])}
                    ),
                )


def is_long(value: Any) -> bool:
    return isinstance(value, str | tuple | list) and len(value) >= LONG


def other_values(kind: Any, value: Any) -> list[Any]:
    """Values of a type other than the present one."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return [None] if type(None) in arguments else []
    if origin is Literal:
        return [choice for choice in arguments if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return ["", LONG_TEXT]
    if isinstance(value, tuple | list):
        return [type(value)(), value * LONG]
    empty = {int: 0, float: 0.0, dict: {}}.get(type(value))
    return [] if empty is None else [empty]


def test_each_field_changes_the_output_as_recorded() -> None:
    """The last new lines if one field of a full record changes, and the number of lines that are new or gone."""
    found: dict[str, Any] = {}
    for kind in records():
        full = struct(kind, full=True)
        before = styled_screen(full, None).splitlines()
        for name, changed in variants(full):
            now = styled_screen(changed, None).splitlines()
            gone = sum(line not in now for line in before)
            new = [line for line in now if line not in before]
            if (new or gone) and not any(LONG_TEXT in line for line in new):  # a long text of which nothing is cut
                found[f"{kind.__qualname__} {name}"] = [[new[-3:], len(new), gone]]
    assert_as_recorded("screens/changed-fields", found)
