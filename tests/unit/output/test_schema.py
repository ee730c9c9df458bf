"""The published schemas accept envdoctor's output and reject everything else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.explained import explain_text
from support.json_schema import validate
from support.paths import ROOT

from envdoctor.core.decoding import convert
from envdoctor.core.errors import BadInput, EnvdoctorError, Interrupted, Refused
from envdoctor.core.records import STACK_SCHEMA, Distribution, Stack, absent, known
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.machine.recorded import machine_json, parse_machine, read_recorded
from envdoctor.output.envelope import envelope as make_envelope
from envdoctor.output.schema import DRAFT, NAMES, SchemaRequest, run, schema_of

MACHINES = sorted((ROOT / "profiles/machines").glob("*.json"))


@each_case("name", NAMES)
def test_every_schema_is_complete(name: str) -> None:
    """It names its draft, and each of its references exists."""
    schema = schema_of(name)
    text = json.dumps(schema)
    assert schema["$schema"] == DRAFT
    for reference in re.findall(r'"\$ref": "#/\$defs/([^"]+)"', text):
        assert reference in schema["$defs"]
    assert validate({}, schema, schema), "an empty object must not validate"


def test_an_unknown_name_lists_the_known_ones() -> None:
    assert run(SchemaRequest(name="machine")).data.schema == schema_of("machine")
    with pytest.raises(BadInput, match="did you mean 'machine'"):
        run(SchemaRequest(name="machines"))


@each_case("path", MACHINES, ids=lambda path: path.stem)
def test_bundled_machines_validate(path: Path) -> None:
    schema = schema_of("machine")
    assert validate(json.loads(path.read_text()), schema, schema) == []
    assert validate(json.loads(machine_json(read_recorded(path.stem))), schema, schema) == []


@each_case(
    ("change", "fault"),
    [
        (lambda m: m.pop("driver"), "$: driver is missing"),
        (lambda m: m.update(colour="red"), "$: colour is not known"),
        (lambda m: m.update(schema=2), "$.schema: 2 is out of bounds"),
        (lambda m: m["system"]["cpu_count"].update(value="two"), "$.system.cpu_count.value: 'two' is no integer"),
        (lambda m: m["driver"]["version"].update(state="perhaps"), "$.driver.version.state: 'perhaps' is none of"),
    ],
)
def test_schema_and_reader_reject_invalid_machine_files(change: Any, fault: str) -> None:
    machine = json.loads(MACHINES[0].read_text())
    change(machine)
    schema = schema_of("machine")
    assert [found for found in validate(machine, schema, schema) if found.startswith(fault)]
    with pytest.raises(BadInput):
        parse_machine(json.dumps(machine), where="x.json")


def test_a_stack_validates_and_reads_back() -> None:
    torch = Distribution(name="torch", version="2.8.0", requires=("triton==3.4.0",))
    stack = Stack(
        kind=known("venv", "pyvenv.cfg"),
        python=known("/v/bin/python", "x"),
        python_version=known("3.12.3", "x"),
        headers=known(True, "x"),
        distributions=known({"torch": torch}, "x"),
        shadowed=known((), "x"),
        torch=absent("x"),
        extensions=known((), "x"),
        cuda_available=absent("x"),
        uses=known((), "x"),
    )
    data = json.loads(json.dumps({"schema": STACK_SCHEMA} | _builtins(stack)))
    schema = schema_of("stack")
    assert validate(data, schema, schema) == []
    assert convert(data, Stack, source="x", expected="x", hint="x") == stack


def _builtins(record: Any) -> dict[str, Any]:
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(record)
    return data


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--machine", "gh200-480gb"],
        ["check", "--machine", "no-such-machine"],
        ["profiles"],
        ["profiles", "show", "cpu"],
        ["recipes"],
        ["rules"],
        ["explain", "CUDA driver version is insufficient for CUDA runtime version"],
        ["explain", "DRV001"],
        ["resolve", "--profile", "no-such-profile"],
        ["train", "sort", "--dry-run"],
        ["verify", "--venv", "/no/such/venv"],
    ],
    ids=" ".join,
)
def test_real_envelopes_validate(arguments: list[str], tmp_path: Path) -> None:
    data = envelope(envdoctor(*arguments, "--format", "json", home=tmp_path))
    assert (data["data"] is None) != (data["error"] is None)
    for name in ("envelope", data["command"]):
        schema = schema_of(name)
        assert validate(data, schema, schema) == []


def test_every_kind_of_error_validates() -> None:
    schema = schema_of("envelope")
    for kind in (EnvdoctorError, BadInput, Refused, Interrupted):
        error = kind("x", expected="y", hint="z")
        explained = explain_text(symptom_table().symptoms[0].sample)
        assert explained.causes
        error.causes = explained.causes
        data = json.loads(json.dumps(make_envelope("check", None, error)))
        assert validate(data, schema, schema) == []


def test_the_envelope_of_another_command_is_rejected(tmp_path: Path) -> None:
    data = envelope(envdoctor("profiles", "--format", "json", home=tmp_path))
    schema = schema_of("check")
    assert validate(data, schema, schema)
