"""`envdoctor schema`: JSON Schemas (draft 2020-12) of the commands' output and of machine and stack files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from envdoctor.commands.registry import COMMANDS, result_types
from envdoctor.core.errors import unknown_name
from envdoctor.core.options import Argument
from envdoctor.core.record import Record
from envdoctor.core.records import MACHINE_SCHEMA, STACK_SCHEMA, Machine, Stack
from envdoctor.core.results import CommandResult
from envdoctor.explain import Cause
from envdoctor.output.envelope import ENVELOPE_SCHEMA

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{name}"
FILES: dict[str, tuple[type, int]] = {"machine": (Machine, MACHINE_SCHEMA), "stack": (Stack, STACK_SCHEMA)}


NAMES = ("envelope", *FILES, *(command.name for command in COMMANDS))


class SchemaResult(Record, frozen=True):
    """A JSON Schema."""

    name: str
    schema: dict[str, Any]


class SchemaRequest(Record, frozen=True):
    """Also prints the schemas of machine files (machine) and of environment files (stack).

    Example: envdoctor schema machine
    """

    name: Annotated[str, Argument("A command, envelope, machine or stack.", "NAME")] = "envelope"


def run(request: SchemaRequest) -> CommandResult:
    """Print the schema with this name."""
    if request.name not in NAMES:
        raise unknown_name("schema", request.name, list(NAMES), hint="envdoctor schema envelope")
    return CommandResult(SchemaResult(request.name, schema_of(request.name)))


def schema_of(name: str) -> dict[str, Any]:
    """The schema of the generic envelope, of one command's envelope, or of a machine or stack file."""
    if name in FILES:
        return _file_schema(name)
    if name == "envelope":
        (cause,), components = msgspec.json.schema_components((Cause,), ref_template=REFERENCE)
        return _envelope(name, {}, cause, components)
    return envelope_schema(name, result_types(name))


def envelope_schema(name: str, results: tuple[type, ...]) -> dict[str, Any]:
    """The schema of the envelope around one of these result records."""
    (cause, *data), components = msgspec.json.schema_components((Cause, *results), ref_template=REFERENCE)
    return _envelope(name, {"anyOf": [*data, {"type": "null"}]}, cause, components)


def _file_schema(name: str) -> dict[str, Any]:
    """The schema of a file. Its `schema` field is limited to the versions that can be read."""
    kind, newest = FILES[name]
    _, components = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    top = components.pop(kind.__name__)
    top["properties"]["schema"] |= {"minimum": 1, "maximum": newest}
    return _clean({"$schema": DRAFT} | top | {"title": f"envdoctor {name}", "$defs": components})


def _envelope(name: str, data: dict[str, Any], cause: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """The schema of the envelope around the data of a command."""
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
                "description": "causes that `explain` finds in the log of a failed child process",
            },
        },
        "required": ["kind", "message", "expected", "hint", "causes"],
        "additionalProperties": False,
    }
    properties = {
        "schema": {"const": ENVELOPE_SCHEMA},
        "envdoctor": text | {"description": "version of the tool"},
        "tables": text | {"description": "date of the compatibility tables"},
        "command": text if name == "envelope" else {"const": name},
        "ok": {"type": "boolean"},
        "exit_code": {"enum": [0, 1, 2, 3, 130]},
        "data": data,
        "error": {"anyOf": [error, {"type": "null"}]},
    }
    return _clean(
        {
            "$schema": DRAFT,
            "title": f"envdoctor {name}" if name == "envelope" else f"output of `envdoctor {name} --format json`",
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
            "$defs": components,
        }
    )


def _clean(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove the indentation of docstrings from descriptions, and an empty `$defs`."""
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
