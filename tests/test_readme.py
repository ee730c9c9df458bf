"""The README tells the truth: generated parts are current, commands exist, CI runs the command that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import ROOT, envdoctor
from readme_parts import README, with_parts

TEXT = README.read_text()
LOG = (
    "INFO start\n(EngineCore_DP0 pid=1959996) ERROR 11-07 09:12:44 [core.py:710] torch.AcceleratorError: "
    "CUDA error: the provided PTX was compiled with an unsupported toolchain.\n"
)


def test_generated_parts_are_current() -> None:
    assert with_parts(TEXT) == TEXT, "run: python tests/readme_parts.py"


def test_ci_runs_the_readme_s_test_command() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    command = blocks[1].strip()
    assert command == ".venv/bin/python -m pytest"
    assert command in (ROOT / ".ci/run").read_text().splitlines()


def test_the_first_command_installs_what_the_second_needs() -> None:
    first = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)[0]
    assert "envdoctor quickstart" in first
    assert "pip install" in first


@pytest.mark.parametrize("line", sorted(set(re.findall(r"^\$ envdoctor (.*)$", TEXT, re.MULTILINE))))
def test_every_command_shown_is_one_that_exists(line: str) -> None:
    """Each command is asked for its help with the same options named; an unknown one would be refused."""
    words = line.split()
    seconds = {"profiles": ("show", "new"), "facts": ("check",), "fleet": ("check", "collective")}
    subcommand = words[:2] if words[1:] and words[1] in seconds.get(words[0], ()) else words[:1]
    done = envdoctor(*subcommand, "--help", home=ROOT)
    assert done.returncode == 0
    for option in re.findall(r"--[a-z-]+", line):
        assert option in done.stdout, f"{option} is no option of {' '.join(subcommand)}"


# Commands that print the same on every machine, and the width that they are shown at.
SHOWN = {
    "envdoctor check --machine h200": 96,
    "envdoctor resolve --all --machine all": 120,
    "envdoctor plan --recipe vllm-colocate --machine h200      # what a run will hold, before the GPU is rented": 120,
    "envdoctor explain train.log": 100,
}


@pytest.mark.parametrize("command", SHOWN)
def test_what_is_shown_is_what_is_printed(command: str, tmp_path: Path) -> None:
    """Line by line, but for what three dots leave out."""
    shown = TEXT.partition(f"$ {command}\n")[2]
    shown = re.split(r"^(?:\$ |```)", shown, maxsplit=1, flags=re.MULTILINE)[0]
    (tmp_path / "train.log").write_text(LOG)
    words = command.partition("#")[0].split()[1:]
    printed = envdoctor(*words, home=tmp_path, COLUMNS=str(SHOWN[command])).stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    for line in shown.splitlines():
        assert line == "  ..." or any(each.startswith(line) for each in lines), line
