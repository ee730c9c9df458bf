"""Every setting of the trainer with other values than its default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from settings import SETTINGS_FILE, Setting, setting_definitions


def setting_variations(file: str = SETTINGS_FILE) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name and a setting with another value: each choice, or one other number, text or list.

    Another trainer has other settings.
    """
    for name, setting in setting_definitions(file).items():
        if name == "trainer":
            continue
        values: list[Any] = [choice for choice in setting.choices if choice != setting.default]
        if not values:
            values = [setting.example] if setting.example is not None else other_values(setting)
        yield from ((f"{name}={value}", {name: value}) for value in values)


def differences(base: tuple[dict[str, Any], list[str]], now: tuple[dict[str, Any], list[str]]) -> list[Any]:
    """The values that differ from the base, the names that are gone, and further notes; empty without any."""
    changes = {key: value for key, value in now[0].items() if value != base[0].get(key)}
    gone = sorted(base[0].keys() - now[0].keys())
    notes = [note for note in now[1] if note not in base[1]]
    return [changes, gone, notes] if changes or gone or notes else []


def by_first_version(results: dict[str, Any]) -> dict[str, Any]:
    """The results per version, without those that equal the result of the version before them."""
    versions = list(results)
    return {
        version: results[version]
        for number, version in enumerate(versions)
        if not number or results[version] != results[versions[number - 1]]
    }


def other_values(setting: Setting) -> list[Any]:
    """A number or a truth value other than the default; both for an unset switch; nothing for a text or a list."""
    default = setting.default
    if setting.kind is bool:
        return [not default] if default is not None else [True, False]
    if setting.kind is int:
        return [(default or 0) + 1]
    return [(default or 0) / 2 or 0.5] if setting.kind is float else []
