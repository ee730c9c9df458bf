"""A validator for the JSON Schemas that envdoctor publishes."""

from __future__ import annotations

from typing import Any

KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "default", "type", "enum", "const", "anyOf", "properties",
    "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "minimum", "maximum",
    "discriminator",
}  # fmt: skip


def validate(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> list[str]:
    """The reasons why a value does not match a schema. A keyword that no schema of envdoctor uses is one, too."""
    if unknown := set(schema) - KNOWN:
        return [f"{at}: unknown keywords {unknown}"]
    if "$ref" in schema:
        return validate(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema:
        tried = [validate(value, each, root, at) for each in schema["anyOf"]]
        return [] if [] in tried else min(tried, key=len)
    own = [f"{at}: {value!r} {fault}" for fault in validate_value(value, schema)]
    return own or [*validate_properties(value, schema, root, at), *validate_items(value, schema, root, at)]


def validate_value(value: Any, schema: dict[str, Any]) -> list[str]:
    """The violations of const, enum, type, minimum and maximum."""
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"is none of {schema['enum']}")
    if "type" in schema and not is_kind(value, schema["type"]):
        found.append(f"is no {schema['type']}")
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append("is out of bounds")
    return found


def is_kind(value: Any, kind: str | list[str]) -> bool:
    """Whether a value has a JSON type, or one of several."""
    if isinstance(kind, list):
        return any(is_kind(value, each) for each in kind)
    if kind in ("integer", "number"):
        return isinstance(value, int | float if kind == "number" else int) and not isinstance(value, bool)
    return isinstance(value, KINDS[kind])


def validate_properties(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> list[str]:
    """The violations of an object's properties."""
    if not isinstance(value, dict):
        return []
    found = [f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    others = schema.get("additionalProperties", True)
    for name, each in value.items():
        if name in schema.get("properties", {}):
            found += validate(each, schema["properties"][name], root, f"{at}.{name}")
        elif others is False:
            found.append(f"{at}: {name} is not known")
        elif isinstance(others, dict):
            found += validate(each, others, root, f"{at}.{name}")
    return found


def validate_items(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> list[str]:
    """The violations of a list's items."""
    if not isinstance(value, list) or not isinstance(schema.get("items"), dict):
        return []
    return [
        fault
        for number, each in enumerate(value)
        for fault in validate(each, schema["items"], root, f"{at}[{number}]")
    ]
