"""Printed commands start envdoctor as the user's shell can start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.command import COMMAND, environment
from support.paths import ROOT

SCRIPT = "import sys; sys.path.insert(0, {root!r}); from envdoctor.__main__ import main; main()"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script of the name `envdoctor` in a directory that is not on PATH."""
    path = tmp_path / "tool/bin/envdoctor"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!{sys.executable}\n{SCRIPT.format(root=str(ROOT))}\n")
    path.chmod(0o755)
    return path


def hint_of(command: list[str], cwd: Path, path: str) -> str:
    """The hint of a usage error."""
    variables = environment(cwd) | {"PATH": path}
    done = subprocess.run([*command, "chekc"], capture_output=True, text=True, env=variables, cwd=cwd, check=False)
    assert done.returncode == 2
    return done.stderr.splitlines()[-1].removeprefix("hint: ")


def test_a_script_that_is_not_on_path_is_named_as_it_was_started(script: Path, tmp_path: Path) -> None:
    assert hint_of(["tool/bin/envdoctor"], tmp_path, "/usr/bin:/bin") == "tool/bin/envdoctor --help"


def test_a_script_on_path_is_named_without_its_directory(script: Path, tmp_path: Path) -> None:
    assert hint_of([str(script)], tmp_path, f"{script.parent}:/usr/bin:/bin") == "envdoctor --help"


def test_a_module_is_named_with_its_interpreter(tmp_path: Path) -> None:
    assert hint_of(list(COMMAND), tmp_path, "/usr/bin:/bin") == f"{sys.executable} -m envdoctor --help"
