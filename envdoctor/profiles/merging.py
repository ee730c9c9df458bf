"""Merge a profile file with the profile that it extends. Pure; files.py finds the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.errors import BadInput, closest_match
from envdoctor.core.record import Record
from envdoctor.core.toml_lines import find_line
from envdoctor.knowledge.releases import normalize_name
from envdoctor.profiles.checks import ENTRY_CHECKS, Problem, distribution_names, escaped
from envdoctor.profiles.records import Pin, Wheel

FORMAT = "a profile in TOML, as `envdoctor profiles new` writes one"
HINT = "envdoctor profiles"
TABLES = ("when", "python", "cuda", "verify", "train", "environment", "build", "fallbacks", "notebook")


class Entries(msgspec.Struct):
    """The entries of one file that a merge needs. All others are checked in the merged profile."""

    extends: str = ""
    drop: tuple[str, ...] = ()
    requirements: tuple[Pin, ...] = ()
    constraints: tuple[Pin, ...] = ()
    wheels: tuple[Wheel, ...] = ()


class LoadedFile(Record, frozen=True):
    """The content of one profile file."""

    path: Path
    text: str
    data: dict[str, Any]
    entries: Entries

    def problem_error(self, problem: Problem) -> BadInput:
        """The error for a problem in this file, with the line number if known."""
        return problem_error(self.path, find_line(self.text, problem.place), problem)


def merge(base: Mapping[str, Any], file: LoadedFile) -> dict[str, Any]:
    """The data of a profile after one file has extended it."""
    before = msgspec.convert({name: base.get(name, []) for name in ENTRY_CHECKS}, Entries)
    dropped = _dropped_names(before, file)
    own_names = _names(file.entries)  # a requirement replaces all inherited entries of its distribution
    removed = {name: {*own_names["requirements"], *names, *dropped} for name, names in own_names.items()}
    removed["requirements"] = {*own_names["requirements"], *dropped}
    inherited = {
        key: [entry for entry, name in zip(base.get(key, []), names, strict=True) if name not in removed[key]]
        for key, names in _names(before).items()
    }
    kept = {
        key: value for key, value in base.items() if key not in ("evidence", "id", "title", "summary", *ENTRY_CHECKS)
    }
    replaced = {*distribution_names(file.entries.requirements), *dropped}
    merged = (
        kept
        | {"id": file.path.stem}
        | _default_description(base, file, dropped)
        | _inherited_tables(base, dropped, replaced)
    )
    for key, value in file.data.items():
        mergeable = key in TABLES and isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if mergeable else value
    for key in ENTRY_CHECKS:
        merged[key] = [*inherited[key], *file.data.get(key, [])]
    merged.pop("extends", None)
    merged.pop("drop", None)
    return merged


def _inherited_tables(base: Mapping[str, Any], dropped: set[str], replaced: set[str]) -> dict[str, Any]:
    """`[build]` and `[fallbacks]` of the base, without the dropped and replaced distributions."""
    build, fallbacks = base.get("build"), base.get("fallbacks")
    found: dict[str, Any] = {}
    if isinstance(fallbacks, dict):
        found["fallbacks"] = {name: value for name, value in fallbacks.items() if name not in replaced}
    if isinstance(build, dict) and isinstance(build.get("packages"), list):
        packages = [name for name in build["packages"] if name not in dropped]
        found["build"] = {**build, "packages": packages} if packages else None
    return found


def _names(entries: Entries) -> dict[str, list[str]]:
    """The distribution names of each list, in order."""
    return {
        "requirements": distribution_names(entries.requirements),
        "constraints": distribution_names(entries.constraints),
        "wheels": [normalize_name(wheel.name) for wheel in entries.wheels],
    }


def _dropped_names(before: Entries, file: LoadedFile) -> set[str]:
    """The names in `drop`. Each must be in the base, and must not be in the file itself."""
    inherited_names = {name for names in _names(before).values() for name in names}
    own = {name for names in _names(file.entries).values() for name in names}
    found = set()
    for name in map(normalize_name, file.entries.drop):
        if name in own:
            raise file.problem_error(
                Problem("drop", f"drop has {escaped(name)}, which the same file requires", "one of the two")
            )
        if name not in inherited_names:
            suggestion = closest_match(name, sorted(inherited_names))
            did_you_mean = f"; did you mean '{suggestion}'?" if suggestion else ""
            expected = "one of: " + ", ".join(sorted(inherited_names))
            raise file.problem_error(
                Problem("drop", f"drop: {escaped(name)} is not in the extended profile{did_you_mean}", expected)
            )
        found.add(str(name))
    return found


def _default_description(base: Mapping[str, Any], file: LoadedFile, dropped: set[str]) -> dict[str, str]:
    """The default title and summary. Those of the base would describe another stack."""
    specs = [pin.spec for pin in file.entries.requirements]
    changes = ", ".join([*specs[:4], *(["..."] if len(specs) > 4 else [])])
    summary = f"{base.get('id', file.entries.extends)}" + (f" with {changes}" if changes else "")
    summary += f", without {', '.join(sorted(dropped))}" if dropped else ""
    return {"title": f"{file.path.stem}, from {base.get('id', file.entries.extends)}", "summary": summary}


def problem_error(path: Path, line: int, problem: Problem) -> BadInput:
    """The error for a problem, with the line number if known."""
    where = f"{path}, line {line}" if line else str(path)
    return BadInput(f"{where}: {problem.observed}", expected=problem.expected or FORMAT, hint=HINT)
