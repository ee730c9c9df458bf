"""The fields of TRL's configurations and TrainingArguments that are settings without an entry in settings.toml.

trl_fields.toml has the fields of each release, trl_field_rules.toml what this trainer does with some of them.
Standard library only.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from messages import BadInput, format_value, shorten

HERE = Path(__file__).parent
CONFIGS = {"grpo": "GRPOConfig", "sft": "SFTConfig", "dpo": "DPOConfig"}  # by trainer
NAMES = {"trl": "TRL", "transformers": "transformers"}


@dataclass(frozen=True)
class Field:
    """A field: its library, the kinds of its values, the releases that have it, and the newest release's default."""

    name: str
    package: str
    kinds: tuple[str, ...]
    first: str  # the first release that has it; empty: the oldest that was read
    last: str  # the last one; empty: the newest that was read
    default: str

    @property
    def releases(self) -> str:
        """The releases in words. Sample: TRL 0.26.2 and newer."""
        name = NAMES[self.package]
        if self.first and self.last:
            return f"{name} {self.first} to {self.last}"
        if self.last:
            return f"{name} up to {self.last}"
        return f"{name} {self.first} or newer" if self.first else f"every supported {name}"

    def is_in(self, version: str) -> bool:
        """Whether a release of the library has the field; also unread releases before one without it."""
        here = release_key(version)
        after = [release for release in releases(self.package) if release > release_key(self.last)]
        return (not self.first or here >= release_key(self.first)[:2]) and (not self.last or here[:2] < after[0][:2])


def release_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparisons. Sample: "1.16.0.dev0" -> (1, 16, 0)."""
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads((HERE / "trl_fields.toml").read_text(encoding="utf-8"))


@functools.cache
def releases(package: str) -> list[tuple[int, ...]]:
    """The releases of a library that were read, the oldest first."""
    return sorted(map(release_key, _table()[f"{package}_releases"].split(" ")))


def class_name(package: str, trainer: str) -> str:
    """The class that has the fields of a library."""
    return f"TRL's {CONFIGS[trainer]}" if package == "trl" else "transformers' TrainingArguments"


@functools.cache
def fields(trainer: str = "grpo") -> dict[str, Field]:
    """Every field of a trainer's configuration in a release that was read."""
    table = _table()
    shared = {name: _make_field(name, "transformers", row) for name, row in table["transformers"].items()}
    own = {name: _make_field(name, "trl", row) for name, row in table[trainer].items()}
    defaults = table["defaults"][trainer]
    return dict(
        sorted(
            {
                **{name: replace(field, default=defaults.get(name, field.default)) for name, field in shared.items()},
                **own,
            }.items()
        )
    )


def _make_field(name: str, package: str, row: dict[str, Any]) -> Field:
    first, _, last = row["releases"].partition("..")
    return Field(name, package, tuple(row["kinds"]), first, last, row["default"])


@functools.cache
def rules() -> dict[str, dict[str, Any]]:
    """The rules for fields: refused, allowed, refused_by a trainer, requires, older_names."""
    return tomllib.loads((HERE / "trl_field_rules.toml").read_text(encoding="utf-8"))


def refused_fields(trainer: str) -> dict[str, list[str]]:
    """The fields that a trainer refuses, each with the reason and a hint."""
    table = rules()
    shared = {
        name: row
        for name, row in table["refused"].items()
        if name not in table["allowed"] or trainer not in table["allowed"][name]
    }
    return shared | table["refused_by"].get(trainer, {})


def check_refused(name: str, value: object, source: str, trainer: str = "grpo") -> None:
    """Refuse a field that another setting or the trainer determines."""
    refused = refused_fields(trainer)
    if name in refused:
        reason, hint = refused[name]
        raise BadInput(
            f"{source}: {name} = {shorten(format_value(value))} cannot be set: {reason}",
            expected=f"settings without {name}",
            hint=hint,
        )


def check_release(name: str, versions: dict[str, str], source: str, trainer: str = "grpo") -> None:
    """Refuse a field that the installed release does not have under this or an older name."""
    table = fields(trainer)
    field = table[name]
    installed = versions.get(field.package, "")
    older = table.get(rules()["older_names"].get(name, ""))
    if not installed or field.is_in(installed) or (older and older.is_in(installed)):
        return
    raise missing_field(name, installed, source, trainer)


def missing_field(name: str, version: str, source: str = "settings", trainer: str = "grpo") -> BadInput:
    """The error for a field that a release of its library does not have."""
    field = fields(trainer)[name]
    return BadInput(
        f"{source}: {name} is set, but {NAMES[field.package]} {version} has no such field",
        expected=field.releases,
        hint=f"leave {name} out, or choose an environment: envdoctor profiles",
    )
