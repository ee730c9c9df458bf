"""The distribution's name, and the command that upgrades envdoctor for each way to install it."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

from support.paths import ROOT

from envdoctor import __version__
from envdoctor.core.distribution import extra_command, upgrade_command
from envdoctor.core.program import DISTRIBUTION


def test_name_and_version_are_those_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == (DISTRIBUTION, __version__)
    assert project["scripts"] == dict.fromkeys(("envdoctor", DISTRIBUTION), "envdoctor.__main__:main")


def test_upgrade_command_is_that_of_the_installer(tmp_path: Path) -> None:
    for marker in ("venv/pyvenv.cfg", "tool/uv-receipt.toml", "pipx/pipx_metadata.json", "checkout/.git/HEAD"):
        (tmp_path / marker).parent.mkdir(parents=True)
        (tmp_path / marker).touch()
    python = tmp_path / "venv/bin/python"
    names = ("venv", "tool", "pipx", "checkout")
    assert {name: upgrade_command(tmp_path / name, tmp_path / name) for name in names} == {
        "venv": f"{python} -m uv pip install --python {python} --upgrade {DISTRIBUTION}",
        "tool": f"uv tool upgrade {DISTRIBUTION}",
        "pipx": f"pipx upgrade {DISTRIBUTION}",
        "checkout": f"git -C {tmp_path / 'checkout'} pull",
    }  # fmt: skip


def test_the_command_of_an_extra_acts_on_this_environment_or_starts_uvx_with_it() -> None:
    python = "/my tools/venv/bin/python"
    command = extra_command("mcp", "mcp>=2,<3", python)
    assert shlex.split(command) == [python, "-m", "uv", "pip", "install", "--python", python, "mcp>=2,<3"]
    cached = "/home/user/.cache/uv/archive-v0/u04M2CW4/bin/python"
    assert extra_command("mcp", "mcp>=2,<3", cached) == f"uvx --from '{DISTRIBUTION}[mcp]' envdoctor mcp"
