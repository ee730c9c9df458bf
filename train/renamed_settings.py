"""Names of settings that are known elsewhere or were valid before: the error names the present one."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from messages import BadInput, format_value, nearest, shorten

FILE = Path(__file__).parent / "renamed_settings.toml"


@functools.cache
def renamed_settings() -> dict[str, Any]:
    """Each other name, with the present name, or with an assignment for each of its values."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def check_renamed(name: str, value: object, source: str, known: Collection[str]) -> None:
    """Raise BadInput for a setting with another name now; `known` has the names of this engine."""
    row = renamed_settings().get(name)
    if row is None:
        return
    text = shorten(format_value(value))
    assignments = {"*": f"{row}={text}"} if isinstance(row, str) else row
    assignment = str(assignments.get(text, assignments.get("*", "")))
    names = present_names(name, known)
    if not names:
        return
    present = ", ".join(names)
    what = f"{name} is named {present}" if len(names) == 1 else f"{name} is replaced by {present}"
    valid = assignment.split(" ") if assignment.partition("=")[0] in known else []
    hint = " ".join(f"--set {part}" for part in valid) or f"leave {name} out"
    raise BadInput(f"{source}: {what}", expected=present, hint=hint)


def present_names(name: str, known: Collection[str]) -> list[str]:
    """The settings among `known` that have another name or replace it; empty for a name without another one."""
    row = renamed_settings().get(name, "")
    assignments = [row] if isinstance(row, str) else row.values()
    parts = [part.partition("=")[0] for each in assignments for part in str(each).split(" ")]
    return [part for part in dict.fromkeys(parts) if part in known]


def suggest_setting(name: str, known: Collection[str]) -> str:
    """` (did you mean 'x'?)` for the nearest name, also for one that has another name now."""
    others = {other: row for other, row in renamed_settings().items() if isinstance(row, str) and row in known}
    near = nearest(name, [*known, *others])
    return f" (did you mean {others.get(near, near)!r}?)" if near else ""
