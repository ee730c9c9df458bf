"""What one profile file says on top of what it extends. Pure; how files are found is in files.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from packaging.utils import canonicalize_name

from envdoctor.core.errors import BadInput, nearest
from envdoctor.profiles.checks import ENTRIES, Fault, names_of, shown
from envdoctor.profiles.records import Pin, Wheel
from envdoctor.profiles.toml_lines import find_line

WHAT = "a profile in TOML, as `envdoctor profiles new` writes one"
HINT = "envdoctor profiles"
TABLES = ("when", "python", "cuda", "verify", "train", "environment", "build", "fallbacks")


class Entries(msgspec.Struct):
    """What of one file is needed to merge it; everything else is looked at once it is whole."""

    extends: str = ""
    drop: tuple[str, ...] = ()
    requirements: tuple[Pin, ...] = ()
    constraints: tuple[Pin, ...] = ()
    wheels: tuple[Wheel, ...] = ()


class Loaded(NamedTuple):
    """One file, read."""

    path: Path
    text: str
    data: dict[str, Any]
    entries: Entries

    def refusal(self, fault: Fault) -> BadInput:
        """The error for a fault of this file, with the line where it is known."""
        return refusal(self.path, find_line(self.text, fault.place), fault)


def merge(base: Mapping[str, Any], file: Loaded) -> dict[str, Any]:
    """The data of a profile with what one file says on top of it."""
    before = msgspec.convert({name: base.get(name, []) for name in ENTRIES}, Entries)
    dropped = _dropped(before, file)
    inherited = _left(base, before, file.entries, dropped)
    kept = {key: value for key, value in base.items() if key not in ("evidence", "id", "title", "summary", *ENTRIES)}
    replaced = {*names_of(file.entries.requirements), *dropped}
    merged = kept | {"id": file.path.stem} | _described(base, file, dropped) | _without(base, dropped, replaced)
    for key, value in file.data.items():
        both = key in TABLES and isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    for key in ENTRIES:
        merged[key] = [*inherited[key], *file.data.get(key, [])]
    merged.pop("extends", None)
    merged.pop("drop", None)
    return merged


def _without(base: Mapping[str, Any], dropped: set[str], replaced: set[str]) -> dict[str, Any]:
    """`[build]` and `[fallbacks]` of the base without what is no longer there: else each delta had to say so too."""
    build, fallbacks = base.get("build"), base.get("fallbacks")
    found: dict[str, Any] = {}
    if isinstance(fallbacks, dict):
        found["fallbacks"] = {name: value for name, value in fallbacks.items() if name not in replaced}
    if isinstance(build, dict) and isinstance(build.get("packages"), list):
        packages = [name for name in build["packages"] if name not in dropped]
        found["build"] = {**build, "packages": packages} if packages else None
    return found


def _names(entries: Entries) -> dict[str, list[str]]:
    """The distributions of each list, entry by entry."""
    return {
        "requirements": names_of(entries.requirements),
        "constraints": names_of(entries.constraints),
        "wheels": [canonicalize_name(wheel.name) for wheel in entries.wheels],
    }


def _left(base: Mapping[str, Any], before: Entries, own: Entries, dropped: set[str]) -> dict[str, list[Any]]:
    """What stays of the base's lists: a requirement speaks for its distribution altogether."""
    mine = _names(own)
    gone = {name: {*mine["requirements"], *names, *dropped} for name, names in mine.items()}
    gone["requirements"] = {*mine["requirements"], *dropped}
    return {
        key: [entry for entry, name in zip(base.get(key, []), names, strict=True) if name not in gone[key]]
        for key, names in _names(before).items()
    }


def _dropped(before: Entries, file: Loaded) -> set[str]:
    """The names that `drop` gives; each must be there to be dropped, and not be asked for again."""
    there = {name for names in _names(before).values() for name in names}
    own = {name for names in _names(file.entries).values() for name in names}
    found = set()
    for name in map(canonicalize_name, file.entries.drop):
        if name in own:
            raise file.refusal(
                Fault("drop", f"drop has {shown(name)}, and the same file asks for it", "one of the two")
            )
        if name not in there:
            near = nearest(name, sorted(there))
            meant = f"; did you mean '{near}'?" if near else ""
            expected = "one of: " + ", ".join(sorted(there))
            raise file.refusal(Fault("drop", f"drop: {shown(name)} is not in what it extends{meant}", expected))
        found.add(str(name))
    return found


def _described(base: Mapping[str, Any], file: Loaded, dropped: set[str]) -> dict[str, str]:
    """Title and summary for a file that gives none: the base's own would tell of another stack."""
    specs = [pin.spec for pin in file.entries.requirements]
    changes = ", ".join([*specs[:4], *(["..."] if len(specs) > 4 else [])])
    summary = f"{base.get('id', file.entries.extends)}" + (f" with {changes}" if changes else "")
    summary += f", without {', '.join(sorted(dropped))}" if dropped else ""
    return {"title": f"{file.path.stem}, from {base.get('id', file.entries.extends)}", "summary": summary}


def refusal(path: Path, line: int, fault: Fault) -> BadInput:
    """The error for a fault, with the line where it is known."""
    where = f"{path}, line {line}" if line else str(path)
    return BadInput(f"{where}: {fault.seen}", expected=fault.expected or WHAT, hint=HINT)
