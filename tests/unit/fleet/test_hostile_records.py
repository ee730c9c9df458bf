"""Recorded nodes of strangers: their names and texts start no line of the output and add no word to a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import envdoctor

from envdoctor.fleet.records import fill_command
from envdoctor.machine.recorded import machine_json, read_recorded

LINE = "x\n::error::owned\n  $ rm -rf ~"
NAMES = (
    "n1\n::error::x", "-oProxyCommand=x", "a b", "a`id`", "a;b", "$(id)", "a'b", "a\tb", "a\x1b[2J", "a|b", "",
    "\u202ea",
)  # fmt: skip


def record(folder: Path, name: str, driver: str, **texts: str) -> None:
    """Record a node with this driver and these texts."""
    data = json.loads(machine_json(read_recorded("h100")))
    data["driver"]["version"]["value"] = driver
    data["system"]["os"]["value"] = texts.get("os", "Ubuntu 22.04")
    data["system"]["glibc"]["value"] = texts.get("glibc", "2.35")
    data["gpus"]["value"][0]["name"]["value"] = texts.get("gpu", "NVIDIA H100 80GB HBM3")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(data))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_with_another_name_than_that_of_a_node(name: str, tmp_path: Path) -> None:
    for node in ("n2", "n3"):
        record(tmp_path / "rec", node, "580.95.05")
    record(tmp_path / "rec", name, "570.95.05")
    done = envdoctor("fleet", "check", "--recorded", "rec", home=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "is no name of a node" in done.stdout
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert not [line for line in lines if line.startswith(("::", "$ ssh -o", "$ ssh a ", "$ ssh $", "$ ssh '"))]


def test_a_line_break_of_a_record_starts_no_line(tmp_path: Path) -> None:
    record(tmp_path / "rec", "n1", f"580.95.05{LINE}", os=LINE, glibc=f"2.3{LINE}", gpu=LINE)
    for node in ("n2", "n3"):
        record(tmp_path / "rec", node, "580.95.05")
    (tmp_path / "rec/n4.json").write_text(json.dumps({"command": "check", "error": {"message": LINE}}))
    done = envdoctor("fleet", "check", "--recorded", "rec", home=tmp_path)
    assert "n1" in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.strip().startswith(("::", "$ rm"))], done.stdout


def test_a_value_of_a_table_command_is_one_word() -> None:
    assert (
        fill_command("ssh {node} {command} check", node="a b", command=["uv", "run x"])
        == "ssh 'a b' uv 'run x' check"
    )
