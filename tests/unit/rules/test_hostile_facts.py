"""No fact of a machine or an environment becomes a command of a remedy: every rule, with hostile facts."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.cases import each_case
from test_remedies_with_uv import named_examples

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import parse_step
from envdoctor.rules import RULES
from envdoctor.rules.registry import run_rule

PAYLOAD = """;pwn;$(pwn)`pwn`'"pwn;pwn\npwn\n"';pwn;"""
REJECTED = "another program|backtick|No closing quotation"
KEPT = ("state", "kind", "schema")
CHANGES: dict[str, Callable[[str, str], bool]] = {
    "values of variables": lambda path, _: ".environment.value." in path,
    "paths": lambda _, text: "/" in text,
    "versions": lambda _, text: bool(re.match(r"v?\d", text)),
    "names": lambda _, text: bool(re.match(r"[A-Za-z]", text)) and "/" not in text,
}


def changed(data: Any, applies: Callable[[str, str], bool], path: str = "") -> Any:
    """The data with the payload at the end of each text that a change applies to."""
    if isinstance(data, dict):
        return {
            key: value if key in KEPT else changed(value, applies, f"{path}.{key}") for key, value in data.items()
        }
    if isinstance(data, list):
        return [changed(value, applies, path) for value in data]
    return data + PAYLOAD if isinstance(data, str) and applies(path, data) else data


def hostile(machine: Machine, stack: Stack, change: str) -> tuple[Machine, Stack]:
    """A machine and an environment with hostile texts."""
    data = [changed(msgspec.to_builtins(each), CHANGES[change]) for each in (machine, stack)]
    return msgspec.convert(data[0], Machine), msgspec.convert(data[1], Stack)


def commands() -> Iterator[str]:
    """Every command with a part of the payload, of each rule on its examples."""
    for example in named_examples().values():
        for change in CHANGES:
            machine, stack = hostile(example.machine, example.stack, change)
            rule = RULES[example.rule]
            for finding in run_rule(rule, machine, *([stack] if rule.needs_environment else [])):
                for remedy in finding.remedies:
                    yield from (command for command in remedy.commands if "pwn" in command)


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="bash is missing")
def test_no_fact_runs_a_command(tmp_path: Path) -> None:
    stub = tmp_path / "bin/pwn"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/bash\necho "$COMMAND" >> {tmp_path}/pwned\n')
    stub.chmod(0o755)
    every = sorted(set(commands()))
    assert len(every) > 5
    for command in every:
        variables = {"PATH": str(stub.parent), "COMMAND": ascii(command)}
        subprocess.run(
            ["/bin/bash", "--norc", "-r", "-c", command],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
    assert not (tmp_path / "pwned").exists(), (tmp_path / "pwned").read_text()
    assert os.listdir(tmp_path) == ["bin"]  # noqa: PTH208


@each_case(
    "line",
    [
        "export A=1;pwn", "export A=$(pwn)", "unset A && pwn", "ls /x | pwn", "ls `pwn`", "ls /x\npwn", "ls 'x",
        "ls > x", "export A=1 & pwn", "cat <(pwn)", "uv pip list | grep x; pwn",
        'export A="$(pwn)"', "ls ;rm -rf /", "(pwn)",
    ],
)  # fmt: skip
def test_a_line_that_starts_another_program_is_no_step(line: str) -> None:
    with pytest.raises(ValueError, match=REJECTED):
        parse_step(line)


@each_case(
    "line",
    [
        "ls -l '/x;pwn'", "export A='$HOME;x'", "uv pip list | grep -iE '^torch|vllm'",
        "sudo dmesg | grep -i xid | tail -20",
        "find / -name 'libcuda.so*' 2>/dev/null", "export TRITON_CACHE_DIR=$(mktemp -d)",
        "uv pip freeze > requirements-3.12.txt",
        "export LD_LIBRARY_PATH=/x${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", "sudo prlimit --pid $$ --nofile=65536",
    ],
)  # fmt: skip
def test_lines_with_filters_are_steps(line: str) -> None:
    parse_step(line)
