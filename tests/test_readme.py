"""The README tells the truth: generated parts are current, commands exist, CI runs the command that it names."""

from __future__ import annotations

import re

import pytest
from command import ROOT, envdoctor
from readme_parts import README, with_parts

TEXT = README.read_text()


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
def test_every_command_shown_is_one_that_exists(line: str, tmp_path: object) -> None:
    """Each command is asked for its help with the same options named; an unknown one would be refused."""
    words = line.split()
    seconds = {"profiles": ("show", "new"), "facts": ("check",), "fleet": ("check", "collective")}
    subcommand = words[:2] if words[1:] and words[1] in seconds.get(words[0], ()) else words[:1]
    done = envdoctor(*subcommand, "--help", home=ROOT)
    assert done.returncode == 0
    for option in re.findall(r"--[a-z-]+", line):
        assert option in done.stdout, f"{option} is no option of {' '.join(subcommand)}"
