"""The tools for other programs: each is a command of the registry with the arguments that only read.

Their input schemas come from the request records, their output schemas from the result records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import FieldInfo, fields

from envdoctor.commands.registry import load, load_run, renderer_name, request_type
from envdoctor.core.decoding import convert
from envdoctor.core.errors import BadInput, unknown_name
from envdoctor.core.options import Argument, Option
from envdoctor.core.results import CommandResult

if TYPE_CHECKING:
    from envdoctor.output.text import Part

DETAILS = {"type": "boolean", "default": False, "description": "Include every fact in the structured result."}


class Tool(NamedTuple):
    """A tool. `fields` are the arguments: no field that writes a file is among them."""

    name: str
    title: str
    description: str
    fields: tuple[str, ...]
    required: tuple[str, ...] = ()  # fields that a caller must give, although the command line has a default
    names_only: tuple[str, ...] = ()  # fields that do not accept a path
    details: tuple[str, ...] = ()  # parts of the result that are left out unless the caller requests details
    seconds: float = 120.0
    uses_network: bool = False
    fixed: tuple[tuple[str, bool], ...] = ()  # fields that every call sets
    run: str = ""  # default: the command with this name
    renderer: str = ""  # default: that of the result record


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "check",
            "Check a machine and an environment",
            "Diagnose this machine (GPU, driver, CUDA, limits) and a Python environment (torch, vLLM, TRL ...): "
            "findings with evidence and fixes, and the install profile that fits. Use it when a GPU "
            "environment may be broken, before a long run, and after a change. Without venv and python it examines "
            "the active environment or ./.venv. It reads files only: no package is imported.",
            ("venv", "python", "machine", "facts", "report", "select", "ignore"),
            details=("machine", "stack", "choice.candidates"),
        ),
        Tool(
            "remedies",
            "List the commands that fix the findings",
            "List the remedies of the findings of check. Several remedies of one finding are alternatives; the steps "
            "of each have an order. The type of a step names what it changes: packages of the environment (install, "
            "uninstall), the user's shell (set, unset), or the machine, which needs root (system, root). Nothing is "
            "executed. Use it after check, and show the commands to the user before you run them.",
            ("venv", "python", "machine", "facts", "report", "select", "ignore"),
            run="envdoctor.integrations.remedies.run",
            renderer="envdoctor.integrations.remedies.render_remedies",
        ),
        Tool(
            "fix",
            "Plan the repair of an environment",
            "Plan what `envdoctor fix` would do: the remedies that it applies together to a copy of the environment, "
            "the commands of uv, the packages that would change, and the findings that are left for a person. "
            "Nothing is changed. Use it after check. If the user agrees, `envdoctor fix` applies the plan.",
            ("targets", "venv", "python", "machine", "facts"),
            fixed=(("dry_run", True),),
            seconds=300.0,
            uses_network=True,
        ),
        Tool(
            "explain",
            "Explain an error or a log",
            "Find the causes of an error of a GPU training stack (CUDA, NCCL, PyTorch, vLLM, TRL, builds), the most "
            "likely first, each with its fix. Use it first when a program failed: pass the error text or the path "
            "of a log. Pass venv as well to compare the causes with the installed packages and the machine. For a "
            "rule id or a cause of another tool's result it returns the documentation.",
            ("text", "venv", "python", "machine", "facts"),
            required=("text",),
        ),
        Tool(
            "audit",
            "Audit pins or a setup guide",
            "Find conflicts that package metadata does not state in requirements files, pyproject.toml, "
            "environment.yml, Dockerfiles, lock files, setup guides in Markdown, or installed environments. Use it "
            "before you install pins or follow a guide. Pass a machine to check that the wheels suit its GPU and "
            "driver. resolve 'never' queries no package index, which is faster.",
            ("targets", "machine", "facts", "resolve"),
            details=("steps", "audits.steps"),
            uses_network=True,
        ),
        Tool(
            "plan",
            "Estimate the GPU memory of a training run",
            "Estimate whether a GRPO training run of a model fits in the GPU memory of this or a recorded machine, "
            "and list settings that make it fit. Use it before a run, or after an out-of-memory error. Nothing is "
            "downloaded and no GPU is needed.",
            ("model", "recipe", "assignments", "machine", "facts", "gpus", "venv", "python"),
            seconds=60.0,
        ),
        Tool(
            "resolve",
            "Resolve the packages of a profile",
            "Resolve which package versions an install profile would install on this or a recorded machine. Use it "
            "to choose versions that work together. It queries the package index and installs nothing. "
            "machine 'all' with all_profiles lists which profile fits which machine, without a network.",
            ("profiles", "all_profiles", "machine", "facts", "python"),
            names_only=("profiles",),  # a profile's file may name sources whose metadata only their code has
            details=("results.resolution.lock.packages",),
            seconds=600.0,
            uses_network=True,
        ),
    )
}


def load_tool_run(tool: Tool) -> Any:
    """The function that runs a tool; imports its module."""
    return load(tool.run) if tool.run else load_run(tool.name)


def request_fields(tool: Tool) -> list[FieldInfo]:
    """The fields of the request record that are arguments of a tool."""
    by_name = {field.name: field for field in fields(request_type(load_tool_run(tool)))}
    return [by_name[name] for name in tool.fields]


def make_request(tool: Tool, arguments: dict[str, Any]) -> Any:
    """The request record of a call. Raises BadInput for a wrong argument."""
    hint = f"call {tool.name} with the arguments of its input schema"
    for name, value in arguments.items():
        if name not in tool.fields:
            raise unknown_name("argument", name, list(tool.fields), hint=hint)
        _reject_value(tool, name, value, hint)
    for name in tool.required:
        if not arguments.get(name):
            raise BadInput(f"the argument '{name}' is missing or empty", expected=f"a value for {name}", hint=hint)
    kind = request_type(load_tool_run(tool))
    return convert(
        arguments | dict(tool.fixed), kind, source=f"arguments of {tool.name}", expected="its input schema", hint=hint
    )


def _reject_value(tool: Tool, name: str, value: object, hint: str) -> None:
    """Raise BadInput for standard input, which a call does not have, and for a path where a name is expected."""
    for each in value if isinstance(value, list) else [value]:
        if each == "-":
            raise BadInput(f"{name} is '-': a call has no standard input", expected="a text or a path", hint=hint)
        if name in tool.names_only and isinstance(each, str) and ("/" in each or each.endswith(".toml")):
            raise BadInput(f"{name} contains '{each}', a path", expected="the name of a profile", hint=hint)


def render_parts(tool: Tool, result: CommandResult) -> list[Part]:
    """The result for people."""
    parts: list[Part] = load(tool.renderer or renderer_name(type(result.data)))(result.data)
    return parts


def input_schema(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    arguments = request_fields(tool)
    properties = {field.name: _argument_schema(field) for field in arguments}
    required = [field.name for field in arguments if field.name in tool.required or field.required]
    return {
        "type": "object",
        "properties": properties | ({"details": DETAILS} if tool.details else {}),
        "required": required,
        "additionalProperties": False,
    }


def _argument_schema(field: FieldInfo) -> dict[str, Any]:
    """The schema of one field, with the help text of its option."""
    schema: dict[str, Any] = msgspec.json.schema(field.type)
    declaration: Option | Argument = field.type.__metadata__[0]
    metavar = declaration.metavar or ""
    form = f" Format: {metavar}." if "=" in metavar or "|" in metavar else ""
    default = {} if field.required else {"default": msgspec.to_builtins(field.default)}
    return schema | default | {"description": declaration.help + form.replace("|-", "")}


def output_schema(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's structured result: the envelope of its command, and its summary."""
    from envdoctor.output.schema import envelope_schema, schema_of

    if tool.run:
        schema = envelope_schema(tool.name, (load(f"{tool.run.rpartition('.')[0]}.{tool.name.title()}"),))
    else:
        schema = schema_of(tool.name)
    schema["properties"]["summary"] = {"type": "string", "description": "The result as the command line prints it."}
    schema["required"] = [*schema["required"], "summary"]
    for path in tool.details:
        _make_optional(schema, path.split("."))
    return _without_unused_definitions(schema)


def _make_optional(schema: dict[str, Any], path: list[str]) -> None:
    """Make a part of the data optional and of any type."""
    *parents, last = path
    nodes = [schema["properties"]["data"]]
    for name in parents:
        nodes = [each["properties"][name] for each in _objects(schema, nodes) if name in each["properties"]]
    for each in _objects(schema, nodes):
        if last in each["properties"]:
            each["properties"][last] = {"description": "only with details"}
            each["required"] = [name for name in each.get("required", ()) if name != last]


def _objects(schema: dict[str, Any], nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The schemas of objects that these nodes are, refer to, or list."""
    for node in nodes:
        if "$ref" in node:
            yield from _objects(schema, [schema["$defs"][node["$ref"].rpartition("/")[2]]])
        yield from _objects(schema, node.get("anyOf", []))
        if isinstance(node.get("items"), dict):
            yield from _objects(schema, [node["items"]])
        if "properties" in node:
            yield node


def _without_unused_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.get("$defs", {})
    used: set[str] = set()

    def visit(part: Any) -> None:
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name in definitions and name not in used:
                used.add(name)
                visit(definitions[name])
            for key, value in part.items():
                if key != "$defs":
                    visit(value)
        elif isinstance(part, list):
            for value in part:
                visit(value)

    visit(schema)
    return schema | {"$defs": {name: definitions[name] for name in definitions if name in used}}


def without_details(tool: Tool, envelope: dict[str, Any]) -> dict[str, Any]:
    """The envelope without the parts that only a caller who requests details receives."""
    for path in tool.details:
        *parents, last = path.split(".")
        nodes = [envelope["data"]]
        for name in parents:
            values = [node[name] for node in nodes if isinstance(node, dict) and name in node]
            nodes = [each for value in values for each in (value if isinstance(value, list) else [value])]
        for node in nodes:
            if isinstance(node, dict):
                node.pop(last, None)
    return envelope
