"""The definition of a setting, and its values: from text, from JSON or TOML, and within its limits."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from types import NoneType
from typing import Any

from messages import BadInput, describe, format_value, set_option, shorten, suggest

KINDS: dict[str, type] = {
    "bool": bool, "int": int, "float": float, "number": float, "text": str, "list": list, "dict": dict,
    "none": NoneType,
}  # fmt: skip
TYPE_NAMES = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list, as a,b",
    dict: 'an object, as {"name": 1}', NoneType: "none",
}  # fmt: skip
UNBOUNDED = 1e9  # the maximum of a setting that defines none


@dataclass(frozen=True)
class Setting:
    """The definition of a setting. A default of None: the field of TRL keeps the default of the installed version."""

    name: str
    kinds: tuple[type, ...]
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float = 0.0
    maximum: float = UNBOUNDED
    tasks: tuple[str, ...] = ()  # the tasks that have the setting; empty: every task
    requires: tuple[str, ...] = ()  # the settings that this one depends on: NAME (set) or NAME=one,of,these
    example: Any = None  # a typical value, for hints
    note: str = ""  # added to the error where the setting has no effect
    planned: bool = False  # the memory plan replaces the default
    trainers: tuple[str, ...] = ()  # the trainers that have the setting; empty: every trainer

    @property
    def kind(self) -> type:
        """The first kind of its values."""
        return self.kinds[0]


def parse_value(setting: Setting, text: str) -> Any:
    """The value that `--set NAME=text` gives. Samples: none, true, 3, 1e-6, a,b, ["a"], {"name": 1}."""
    kinds, lower = setting.kinds, text.lower()
    if NoneType in kinds and lower == "none":
        return None
    try:
        if bool in kinds and (lower in ("true", "false") or kinds == (bool,)):
            return {"true": True, "false": False}[lower]
        if (dict in kinds and str not in kinds) or text.startswith(("[", "{")):
            return coerce(setting, json.loads(text), f"--set {setting.name}")
        for kind in (int, float):
            if kind in kinds and _is_number(text, kind):
                return kind(text)
    except (KeyError, ValueError, RecursionError):
        raise _type_error(setting, f"--set {setting.name}={shorten(text)}") from None
    if list in kinds and (str not in kinds or "," in text):
        return [part.strip() for part in text.split(",") if part.strip()]
    if str not in kinds:
        raise _type_error(setting, f"--set {setting.name}={shorten(text)}")
    return text


def _is_number(text: str, kind: type) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def coerce(setting: Setting, value: object, source: str) -> Any:
    """A value of JSON or TOML as one of the setting's kinds."""
    if float in setting.kinds and int not in setting.kinds and type(value) is int:
        return float(value) if abs(value) <= UNBOUNDED else value  # float() may overflow; the range check refuses it
    if list in setting.kinds and type(value) is list:
        return [str(part) for part in value]
    if type(value) not in setting.kinds:  # not isinstance: True is an int
        raise _type_error(setting, f"{source}: {setting.name} = {describe(value)}")
    return value


def check_value(setting: Setting, value: Any, source: str) -> None:
    """Refuse a value outside the choices or the range."""
    low, high = setting.minimum, setting.maximum
    if setting.choices and value is not None and value not in setting.choices:
        raise BadInput(
            f"{source}: {setting.name} = {value!r}{_suggest_choice(setting, str(value))}",
            expected=f"{setting.name} is one of {', '.join(choice or 'nothing' for choice in setting.choices)}",
            hint=set_option(setting.name, example(setting)),
        )
    if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
        one_sided = high >= UNBOUNDED and value < low
        limit = f"at least {low:g}" if one_sided else f"from {low:g} to {high:.10g}"
        if not math.isfinite(low):
            limit = "a finite number"
        raise BadInput(
            f"{source}: {setting.name} = {shorten(str(value))}",  # also NaN, which is in no range
            expected=f"{setting.name} is {limit}",
            hint=set_option(setting.name, example(setting)),
        )


def _suggest_choice(setting: Setting, value: str) -> str:
    """The choice that completes the value, the default first; else the nearest. Sample: adam -> adamw_torch."""
    completed = [choice for choice in (setting.default, *setting.choices) if value and choice.startswith(value)]
    return f" (did you mean {completed[0]!r}?)" if completed else suggest(value, setting.choices)


def _type_error(setting: Setting, message: str) -> BadInput:
    kinds = " or ".join(TYPE_NAMES[kind] for kind in setting.kinds if kind is not NoneType)
    default = "TRL's" if setting.default is None else format_value(setting.default)
    return BadInput(
        message,
        expected=f"{setting.name} is {kinds} (default {default})",
        hint=set_option(setting.name, example(setting)),
    )


def example(setting: Setting) -> str:
    """A valid value for a hint."""
    kinds = {bool: "true", int: "1", float: "0.5", str: "TEXT", list: "a,b", dict: '{"name": 1}'}
    values = (setting.example, setting.default, *setting.choices, *(kinds.get(kind) for kind in setting.kinds))
    return next(format_value(value) for value in values if value is not None)
