"""Every setting of the trainer with other values than its default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from settings import SETTINGS_FILE, setting_definitions


def setting_variations(file: str = SETTINGS_FILE) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name and a setting with another value: each choice, or one other number, text or list."""
    for name, setting in setting_definitions(file).items():
        values: list[Any] = [choice for choice in setting.choices if choice != setting.default]
        if not values:
            values = [setting.example] if setting.example is not None else other_values(setting.default)
        yield from ((f"{name}={value}", {name: value}) for value in values)


def other_values(default: Any) -> list[Any]:
    """A number or a truth value other than the default; nothing for a text or a list."""
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [default + 1]
    return [default / 2 or 0.5] if isinstance(default, float) else []
