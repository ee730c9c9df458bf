"""The fields of GRPOConfig and TrainingArguments that are settings without an entry in settings.toml.

trl_fields.toml has the fields of each release, trl_field_rules.toml what this trainer does with some of them.
Standard library only.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from messages import BadInput, format_value, shorten

HERE = Path(__file__).parent
CLASSES = {"trl": "TRL's GRPOConfig", "transformers": "transformers' TrainingArguments"}
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


@functools.cache
def fields() -> dict[str, Field]:
    """Every field of a release that was read."""
    table = _table()["fields"]
    return {
        name: Field(name, row["package"], tuple(row["kinds"]), *_ends(row["releases"]), row["default"])
        for name, row in table.items()
    }


def _ends(releases: str) -> tuple[str, str]:
    first, _, last = releases.partition("..")
    return first, last


@functools.cache
def rules() -> dict[str, dict[str, Any]]:
    """The rules for fields: refused, requires, older_names."""
    return tomllib.loads((HERE / "trl_field_rules.toml").read_text(encoding="utf-8"))


def check_refused(name: str, value: object, source: str) -> None:
    """Refuse a field that another setting or the trainer determines."""
    if name in rules()["refused"]:
        reason, hint = rules()["refused"][name]
        raise BadInput(
            f"{source}: {name} = {shorten(format_value(value))} cannot be set: {reason}",
            expected=f"settings without {name}",
            hint=hint,
        )


def check_release(name: str, versions: dict[str, str], source: str) -> None:
    """Refuse a field that the installed release does not have under this or an older name."""
    field = fields()[name]
    installed = versions.get(field.package, "")
    older = rules()["older_names"].get(name, "")
    if not installed or field.is_in(installed) or (older and fields()[older].is_in(installed)):
        return
    raise missing_field(name, installed, source)


def missing_field(name: str, version: str, source: str = "settings") -> BadInput:
    """The error for a field that a release of its library does not have."""
    field = fields()[name]
    return BadInput(
        f"{source}: {name} is set, but {NAMES[field.package]} {version} has no such field",
        expected=field.releases,
        hint=f"leave {name} out, or choose an environment: envdoctor profiles",
    )
