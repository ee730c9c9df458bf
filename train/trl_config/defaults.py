"""The defaults of GRPOConfig in the newest tested TRL and transformers, compared with those of a newer one.

A field that the run does not set has the library's default, and a newer version may train differently by it.
`tested_defaults.toml` is written by `PYTHON -B train/trl_config/defaults.py`.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

TESTED = {"trl": "1.16.0", "transformers": "5.17.0"}
FILE = Path(__file__).with_name("tested_defaults.toml")


def defaults_of(config: type) -> Iterator[tuple[str, str]]:
    """(field, its default as text) of a dataclass; fields without a default are left out."""
    for field in dataclasses.fields(config):
        if field.default_factory is not dataclasses.MISSING:
            yield field.name, _as_text(field.default_factory())
        elif field.default is not dataclasses.MISSING:
            yield field.name, _as_text(field.default)


def read_defaults() -> dict[str, str]:
    """The table."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def changed_defaults(config: type, given: Collection[str], versions: Mapping[str, Version | None]) -> list[str]:
    """A note where a library is newer than the tested one: the changed defaults of fields that are not in `given`."""
    newer = [
        f"{name} {version} is newer than the tested {tested}"
        for name, tested in TESTED.items()
        if (version := versions.get(name)) is not None and version > Version(tested)
    ]
    if not newer:
        return []
    tested = read_defaults()
    changed = [
        f"{name} = {value} (tested: {tested.get(name, 'no such field')})"
        for name, value in sorted(defaults_of(config))
        if name not in given and tested.get(name) != value
    ]
    if not changed:
        return [f"{' and '.join(newer)}; its defaults of fields that this run does not set are the same"]
    return [
        f"{' and '.join(newer)}, and has other defaults of fields that this run does not set: {', '.join(changed)}"
    ]


def _as_text(value: Any) -> str:
    return repr(getattr(value, "value", value))


if __name__ == "__main__":
    import json

    from trl import GRPOConfig

    head = "".join(f"# {name} {version}\n" for name, version in TESTED.items())
    rows = "".join(f"{name} = {json.dumps(value)}\n" for name, value in defaults_of(GRPOConfig))
    FILE.write_text(f"# Defaults of GRPOConfig, as Python prints them, in:\n{head}{rows}", encoding="utf-8")
