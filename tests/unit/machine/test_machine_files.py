"""The bundled machines in profiles/machines: each decodes, has an origin, and is formatted."""

from __future__ import annotations

import json
from pathlib import Path

from support.cases import each_case
from support.command import envdoctor
from support.paths import ROOT

from envdoctor.core.records import Machine, known
from envdoctor.machine.recorded import machine_json, override, parse_machine
from envdoctor.rules import evaluate

FILES = sorted((ROOT / "profiles/machines").glob("*.json"))
NAMES = [path.stem for path in FILES]


def read_bundled_machine(name: str) -> Machine:
    path = FILES[NAMES.index(name)]
    return parse_machine(path.read_text(), where=str(path))


@each_case("name", NAMES)
def test_bundled_machine(name: str) -> None:
    machine = read_bundled_machine(name)
    assert machine.name == name
    assert machine.origin.startswith("recorded by envdoctor ")
    assert FILES[NAMES.index(name)].read_text() == machine_json(machine)


@each_case(
    ("setting", "path", "value"),
    [
        ("driver.version=550", "driver.version", "550"),
        ("driver.cuda=13", "driver.cuda", "13"),
        ("driver.cuda=12.4", "driver.cuda", "12.4"),
        ("system.cpu_count=4", "system.cpu_count", 4),
        ('driver.version="550"', "driver.version", "550"),
    ],
)
def test_override_keeps_the_type_of_the_fact(setting: str, path: str, value: object) -> None:
    machine = override(read_bundled_machine("h200"), [setting])
    fact = machine
    for part in path.split("."):
        fact = getattr(fact, part)
    assert fact.value == value  # type: ignore[attr-defined]


def test_facts_follow_the_one_on_which_they_depend() -> None:
    machine = override(read_bundled_machine("h200"), ["driver.version=550.144.03"])
    assert machine.driver.library == known("550.144.03", "override of driver.version")
    assert machine.driver.cuda == known("12.4", "override of driver.version")
    assert [finding.id for finding in evaluate(machine)] == []
    machine = override(read_bundled_machine("h200"), ["driver.library=1.2", "driver.version=550.144.03"])
    assert machine.driver.library == known("1.2", "override")
    machine = override(read_bundled_machine("h200"), ["driver.version=1", "gpus.0.name=NVIDIA A100-SXM4-80GB"])
    assert machine.driver.cuda.state == "unreadable"
    assert [gpu.compute_capability.value for gpu in machine.gpus.value or ()] == ["8.0"]


@each_case("capability", ["9.x", "", "9", "sm_90", "²1.0", "1" * 5000 + ".0"])
def test_an_invalid_compute_capability_is_an_error_with_its_field(capability: str, tmp_path: Path) -> None:
    path = tmp_path / "h2.json"
    path.write_text((ROOT / "profiles/machines/h200.json").read_text().replace('"9.0"', json.dumps(capability)))
    for arguments in (
        ("--machine", path),
        ("--machine", "h200", "--fact", f"gpus.0.compute_capability={capability}"),
    ):
        done = envdoctor("check", *arguments, home=tmp_path)
        assert done.returncode == 2, done.stdout
        assert "gpus.0.compute_capability" in done.stderr
        assert "expected: " in done.stderr
