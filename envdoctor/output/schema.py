"""JSON Schemas (draft 2020-12) of what envdoctor writes and reads, made from the records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from envdoctor.core import results
from envdoctor.core.errors import unknown_name
from envdoctor.core.records import MACHINE_SCHEMA, STACK_SCHEMA, Machine, Stack, Verification
from envdoctor.core.results import Answer
from envdoctor.explain import Cause
from envdoctor.output.envelope import ENVELOPE_SCHEMA

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{name}"
FILES: dict[str, tuple[type, int]] = {"machine": (Machine, MACHINE_SCHEMA), "stack": (Stack, STACK_SCHEMA)}


def _answers() -> dict[str, tuple[type, ...]]:
    """What each command may answer with. results.py knows some names for the type checker only: here it gets them."""
    from envdoctor.commands import housekeeping
    from envdoctor.commands.abi import AbiReport
    from envdoctor.commands.archs import ArchsReport
    from envdoctor.commands.audit import Audited
    from envdoctor.commands.fetch import Fetched
    from envdoctor.commands.keeping import LockedAll, Matrix
    from envdoctor.commands.pack import PackChecked, Packed
    from envdoctor.commands.plan import MemoryPlan
    from envdoctor.commands.plot import Plotted
    from envdoctor.commands.profiles import Entries, ProfileShown
    from envdoctor.commands.report import Report
    from envdoctor.commands.watch import Watched
    from envdoctor.explain import Explanation
    from envdoctor.fleet.ranks import Collective
    from envdoctor.fleet.records import FleetChecked
    from envdoctor.install.install import InstallResult
    from envdoctor.knowledge_check import FactsChecked
    from envdoctor.locking.resolve import Lock, Resolution
    from envdoctor.profiles import Profile
    from envdoctor.training.recipes import Recipe, Setting
    from envdoctor.training.start import Run
    from envdoctor.verify.bench_records import BenchmarkReport
    from envdoctor.verify.loading import LoadTest

    for late in (Recipe, Run, Setting, InstallResult, Lock, Profile, Resolution):
        setattr(results, late.__name__, late)
    return {
        "check": (results.Checked,),
        "explain": (Explanation, results.Documentation),
        "rules": (results.RuleList,),
        "report": (Report, results.Written),
        "profiles": (Entries,),
        "profiles show": (ProfileShown,),
        "profiles new": (results.Text, results.Written),
        "facts check": (FactsChecked,),
        "resolve": (results.ResolvedAll, Matrix),
        "lock": (LockedAll,),
        "audit": (Audited,),
        "install": (InstallResult, results.Planned),
        "fetch": (Fetched,),
        "envs": (housekeeping.Environments,),
        "rollback": (housekeeping.RolledBack,),
        "clean": (housekeeping.Removed,),
        "uninstall": (housekeeping.Removed,),
        "paths": (housekeeping.Paths,),
        "verify": (Verification, LoadTest, BenchmarkReport),
        "archs": (ArchsReport,),
        "abi": (AbiReport,),
        "train": (results.Trained, results.RecipeList),
        "plan": (MemoryPlan,),
        "watch": (Watched,),
        "plot": (Plotted,),
        "pack": (Packed, PackChecked),
        "fleet check": (FleetChecked,),
        "fleet collective": (Collective,),
        "quickstart": (results.Quickstarted, Verification),
    }


NAMES = ("envelope", *FILES, "check", "explain", "rules", "report", "profiles", "profiles show", "profiles new",
         "facts check", "resolve", "lock",
         "audit", "install", "fetch", "envs", "rollback", "clean", "uninstall", "paths",
         "verify", "archs", "abi", "plan", "train", "watch", "plot", "pack",
         "fleet check", "fleet collective", "quickstart")  # fmt: skip


def answer(name: str) -> Answer:
    """What `envdoctor schema NAME` answers with."""
    if name not in NAMES:
        raise unknown_name("schema", name, list(NAMES), hint="envdoctor schema envelope")
    return Answer(results.Schema(name, schema_of(name)))


def schema_of(name: str) -> dict[str, Any]:
    """The schema of the envelope with any data, of one command's envelope, or of a machine or stack file."""
    if name in FILES:
        return _file_schema(name)
    if name == "envelope":
        (cause,), components = msgspec.json.schema_components((Cause,), ref_template=REFERENCE)
        return _envelope(name, {}, cause, components)
    (cause, *data), components = msgspec.json.schema_components((Cause, *_answers()[name]), ref_template=REFERENCE)
    return _envelope(name, {"anyOf": [*data, {"type": "null"}]}, cause, components)


def _file_schema(name: str) -> dict[str, Any]:
    """A record that is kept in a file; `schema` is always written, and no newer one is read."""
    kind, newest = FILES[name]
    _, components = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    top = components.pop(kind.__name__)
    top["properties"]["schema"] |= {"minimum": 1, "maximum": newest}
    return _clean({"$schema": DRAFT} | top | {"title": f"envdoctor {name}", "$defs": components})


def _envelope(name: str, data: dict[str, Any], cause: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Around any command's data, as `envelope` makes it."""
    text = {"type": "string"}
    error = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["bad-input", "failed", "interrupted", "refused"]},
            "message": text,
            "expected": text,
            "hint": text,
            "causes": {
                "type": "array",
                "items": cause,
                "description": "what `explain` finds in the log of a failed child",
            },
        },
        "required": ["kind", "message", "expected", "hint", "causes"],
        "additionalProperties": False,
    }
    properties = {
        "schema": {"const": ENVELOPE_SCHEMA},
        "envdoctor": text | {"description": "version of the tool"},
        "command": text if name == "envelope" else {"const": name},
        "ok": {"type": "boolean"},
        "exit_code": {"enum": [0, 1, 2, 3, 130]},
        "data": data,
        "error": {"anyOf": [error, {"type": "null"}]},
    }
    return _clean(
        {
            "$schema": DRAFT,
            "title": f"envdoctor {name}" if name == "envelope" else f"what `envdoctor {name} --format json` prints",
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
            "$defs": components,
        }
    )


def _clean(schema: dict[str, Any]) -> dict[str, Any]:
    """Descriptions without the indentation of docstrings, and no `$defs` where there are none."""
    from inspect import cleandoc

    def walk(part: Any, change: Callable[[str], str]) -> Any:
        if isinstance(part, dict):
            return {
                key: change(value) if key == "description" and isinstance(value, str) else walk(value, change)
                for key, value in part.items()
                if key != "$defs" or value
            }
        return [walk(each, change) for each in part] if isinstance(part, list | tuple) else part

    cleaned: dict[str, Any] = walk(schema, cleandoc)
    return cleaned
