"""The defaults of TRL's configuration in the newest tested TRL and transformers, compared with those of a newer one.

A field that the run does not set has the library's default, and a newer version may train differently by it. The
tested defaults are those of trl_fields.toml; one that the library computes is not compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from packaging.version import Version
from trl_fields import fields

TESTED = {"trl": "1.16.0", "transformers": "5.17.0"}  # as in tests/campaigns/config_fields.py
COMPUTED = ""


def defaults_of(config: type) -> Iterator[tuple[str, str]]:
    """(field, its default as text) of a dataclass; a computed default is empty, a field without one is left out."""
    for field in dataclasses.fields(config):
        if field.default_factory is not dataclasses.MISSING:
            yield field.name, COMPUTED
        elif field.default is not dataclasses.MISSING:
            yield field.name, _as_text(field.default)


def changed_defaults(
    config: type, given: Collection[str], versions: Mapping[str, Version | None], trainer: str = "grpo"
) -> list[str]:
    """A note where a library is newer than the tested one: the changed defaults of fields that are not in `given`."""
    newer = [
        f"{name} {version} is newer than the tested {tested}"
        for name, tested in TESTED.items()
        if (version := versions.get(name)) is not None and version > Version(tested)
    ]
    if not newer:
        return []
    tested = {name: field.default for name, field in fields(trainer).items()}
    changed = [
        f"{name} = {value or 'computed'} (tested: {tested.get(name, 'no such field')})"
        for name, value in sorted(defaults_of(config))
        if name not in given and tested.get(name) not in (value, COMPUTED)
    ]
    if not changed:
        return [f"{' and '.join(newer)}; its defaults of fields that this run does not set are the same"]
    return [
        f"{' and '.join(newer)}, and has other defaults of fields that this run does not set: {', '.join(changed)}"
    ]


def _as_text(value: Any) -> str:
    """A default as trl_fields.toml has it."""
    constant = getattr(value, "value", value)
    return "none" if constant is None else str(constant).lower() if isinstance(constant, bool) else str(constant)
