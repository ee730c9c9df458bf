"""Recorded machines: read one from a file or by name, or one with GPUs of the catalogue; record a machine."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.decoding import convert, read_text
from envdoctor.core.directories import bundled_directory
from envdoctor.core.distribution import upgrade_command
from envdoctor.core.errors import BadInput, unknown_name
from envdoctor.core.options import GPU_PREFIX
from envdoctor.core.paths import is_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import single_lines
from envdoctor.core.records import MACHINE_SCHEMA, Machine
from envdoctor.knowledge.cuda import cuda_of_driver
from envdoctor.knowledge.gpu_catalogue import catalogue, find_gpus
from envdoctor.knowledge.gpus import compute_capability
from envdoctor.machine.catalogue import catalogue_machine

FILE_DESCRIPTION = "a machine file written by `envdoctor check --save FILE`"
HINT = "envdoctor check --save machine.json"
CAPABILITY = lazy_pattern(r"[0-9]{1,3}\.[0-9]{1,3}")


def machine_names() -> list[str]:
    """The names of the bundled machines."""
    return sorted(path.stem for path in (bundled_directory("profiles") / "machines").glob("*.json"))


def read_recorded(name_or_file: str) -> Machine:
    """A machine from a file, a bundled one by name, or one with GPUs of the catalogue: l4x2, or gpu:l4x2."""
    if name_or_file.startswith(GPU_PREFIX):
        return _read_catalogue(name_or_file.removeprefix(GPU_PREFIX))
    path = Path(name_or_file)
    if path.suffix == ".json" or "/" in name_or_file or is_file(path):
        return parse_machine(read_text(path, expected=FILE_DESCRIPTION, hint=HINT), where=name_or_file)
    if name_or_file not in machine_names():
        return _read_catalogue(name_or_file, machine_names())
    bundled_file = bundled_directory("profiles") / "machines" / f"{name_or_file}.json"
    return parse_machine(bundled_file.read_text(), where=name_or_file)


def _read_catalogue(name: str, recorded: Sequence[str] = ()) -> Machine:
    """A machine with GPUs of the catalogue. Raises BadInput for a name that is neither there nor recorded."""
    if found := find_gpus(name):
        return catalogue_machine(*found)
    kind = "machine or GPU" if recorded else "GPU"
    raise unknown_name(kind, name, [*dict.fromkeys([*recorded, *catalogue()])], hint="envdoctor gpus")


def parse_machine(text: str, *, where: str) -> Machine:
    """Parse a machine from JSON; BadInput for other JSON, missing fields and newer schemas."""
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{where} is not JSON: {error}", expected=FILE_DESCRIPTION, hint=HINT) from error
    if not isinstance(data, dict):
        raise BadInput(f"{where} contains a JSON {type(data).__name__}", expected=FILE_DESCRIPTION, hint=HINT)
    schema = data.get("schema", MACHINE_SCHEMA)
    if not isinstance(schema, int) or schema > MACHINE_SCHEMA or schema < 1:
        raise BadInput(
            f"{where} has schema {schema!r}",
            expected=f"schema 1 to {MACHINE_SCHEMA}",
            hint=upgrade_command() if isinstance(schema, int) and schema > MACHINE_SCHEMA else HINT,
        )
    machine = convert(single_lines(data), Machine, source=where, expected=FILE_DESCRIPTION, hint=HINT)
    _require_capabilities(machine, where)
    return machine


def _require_capabilities(machine: Machine, where: str) -> None:
    """Raise BadInput for a compute capability with which rules and plans cannot calculate."""
    for index, gpu in enumerate(machine.gpus.value or ()):
        capability = gpu.compute_capability.value
        if capability is not None and not CAPABILITY.fullmatch(capability):
            raise BadInput(
                f"{where}: gpus.{index}.compute_capability is {capability!r}",
                expected='two numbers: "9.0"',
                hint=HINT,
            )


def machine_json(machine: Machine) -> str:
    """A machine as JSON, including its `schema`."""
    return json_text({"schema": MACHINE_SCHEMA} | msgspec.to_builtins(machine))


def json_text(data: object) -> str:
    """A record or plain data as indented JSON for a file."""
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n"


def anonymize(machine: Machine, *, name: str, origin: str, home: str) -> Machine:
    """The machine without personal data: the home directory is replaced by `~`, GPU UUIDs are removed."""
    data = msgspec.to_builtins(machine)
    for gpu in data["gpus"].get("value", ()):
        gpu["uuid"] = {"state": "absent", "source": gpu["uuid"]["source"], "note": "removed when recorded"}
    text = msgspec.json.encode(data).decode().replace(f'"{home}/', '"~/').replace(f'"{home}"', '"~"')
    text = text.replace(f" {home}/", " ~/").replace(f":{home}/", ":~/")
    anonymous = convert(
        msgspec.json.decode(text), Machine, source="this machine", expected=FILE_DESCRIPTION, hint=HINT
    )
    return msgspec.structs.replace(anonymous, name=name, origin=origin)


def override(machine: Machine, settings: list[str]) -> Machine:
    """The machine with single facts replaced, such as `driver.version=570.26` or `gpus.0.memory_total=...`.

    A value is parsed as JSON if possible, otherwise it is text. A number is text for a text fact: driver.version=550.
    Facts that depend on a replaced one follow it, unless they are replaced as well.
    """
    data = msgspec.to_builtins(machine)
    replaced = {setting.partition("=")[0] for setting in settings}
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator:
            raise BadInput(
                f"--fact {setting}: no value is given",
                expected="NAME=VALUE, such as driver.version=570.26",
                hint=HINT,
            )
        parsed = single_lines(_parse_value(text))
        for value in (parsed, text, parsed) if isinstance(parsed, int | float) else (parsed,):
            _replace(data, path, value)
            with contextlib.suppress(msgspec.ValidationError):
                msgspec.convert(data, Machine)
                break
        convert(
            data, Machine, source=f"--fact {setting}", expected="a fact's name and a value of its type", hint=HINT
        )
        _replace_dependents(data, path, replaced)
    changed = msgspec.convert(data, Machine)
    if settings:
        _require_capabilities(changed, "--fact")
    return changed


def _replace_dependents(data: Any, path: str, replaced: set[str]) -> None:
    """Replace the facts that depend on the one at `path`: a driver's library and CUDA, a GPU's compute capability."""
    dependents: dict[str, str | None] = {}
    if path == "driver.version":
        version = data["driver"]["version"]["value"]
        dependents = {"driver.library": version, "driver.cuda": cuda_of_driver(version)}
    elif match := re.fullmatch(r"(gpus\.(\d+))\.name", path):
        gpu = data["gpus"]["value"][int(match[2])]["name"]["value"]
        dependents = {f"{match[1]}.compute_capability": compute_capability(gpu)}
    for name, value in dependents.items():
        if name not in replaced:
            fact = _replace(data, name, value)
            fact["source"] = f"override of {path}"
            if not value:
                fact |= {"state": "unreadable", "note": f"unknown for {path}"}
                del fact["value"]


def _replace(data: Any, path: str, value: object) -> dict[str, Any]:
    *parents, last = path.split(".")
    for part in parents:
        data = _child(data, part, path)
    fact = _child(data, last, path)
    if not isinstance(fact, dict) or "source" not in fact:
        raise BadInput(f"--fact {path} is not a single fact", expected="a fact such as driver.version", hint=HINT)
    fact.clear()
    fact.update({"value": value, "source": "override"})
    return fact


def _child(data: Any, part: str, path: str) -> Any:
    if isinstance(data, dict) and "value" in data and part not in data:
        data = data["value"]  # a fact whose value is a record or a list: gpus.0.name
    if isinstance(data, list | tuple) and re.fullmatch(r"\d+", part) and int(part) < len(data):
        return data[int(part)]
    if isinstance(data, dict) and part in data:
        return data[part]
    names = sorted(data) if isinstance(data, dict) else [str(i) for i in range(len(data or ()))]
    raise BadInput(f"--fact {path}: unknown name '{part}'", expected="one of: " + ", ".join(names), hint=HINT)


def _parse_value(text: str) -> object:
    """Parse JSON; `570.26` stays text because versions are not numbers."""
    if re.fullmatch(r"\d+\.\d+", text):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
