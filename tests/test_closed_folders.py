"""Folders that nobody may look into, on PATH, in variables and in arguments: said, and never a fault of envdoctor."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import envdoctor, envelope, environment

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "python3.12").symlink_to(sys.executable)
    (folder / "mine.toml").write_text("")
    folder.chmod(0)
    yield folder
    folder.chmod(0o755)


def bound_by_rights(*arguments: str | Path, home: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """One command as anybody runs it: what root may read in spite of a folder's bits is given up first."""
    prctl = ctypes.CDLL(None).prctl

    def drop() -> None:
        prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)
        prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH)

    return subprocess.run(
        [sys.executable, "-m", "envdoctor", *map(str, arguments)],
        capture_output=True, text=True, env=environment(home, **extra), cwd=home, timeout=120, check=False,
        preexec_fn=drop,
    )  # fmt: skip


ARGUMENTS = [
    ["check", "--venv", "{closed}"],
    ["check", "--venv", "{closed}/venv"],
    ["check", "--python", "{closed}/python3.12"],
    ["verify", "--venv", "{closed}"],
    ["verify", "--python", "{closed}/python3.12"],
    ["train", "sort", "--venv", "{closed}/venv"],
    ["train", "sort", "--python", "{closed}/python3.12", "--dry-run"],
    ["train", "{closed}/mine.toml"],
    ["resolve", "--profile", "{closed}/mine.toml"],
    ["audit", "{closed}"],
    ["audit", "{closed}/SETUP.md"],
    ["explain", "{closed}/train.log"],
    ["check", "--machine", "{closed}/machine.json"],
    ["check", "--from-report", "{closed}/report.txt"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_what_may_not_be_read_is_wrong_input(arguments: list[str], closed: Path, tmp_path: Path) -> None:
    done = bound_by_rights(*(each.format(closed=closed) for each in arguments), home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Permission denied" in done.stderr
    assert "closed" in done.stderr
    assert "hint: " in done.stderr


PLACES = [
    ["install", "--profile", "cpu", "--venv", "{closed}/venv"],
    ["install", "--profile", "cpu", "--from", "{closed}"],
    ["archs", "{closed}"],
    ["fetch", "--profile", "cpu", "--dest", "{closed}/wheels"],
    ["uninstall", "--venv", "{closed}/venv"],
]


@pytest.mark.parametrize("arguments", PLACES, ids=" ".join)
def test_a_place_that_may_not_be_used_is_named(arguments: list[str], closed: Path, tmp_path: Path) -> None:
    done = bound_by_rights(*(each.format(closed=closed) for each in arguments), home=tmp_path)
    assert done.returncode == 3
    assert f"error: {closed}" in done.stderr
    assert "Permission denied" in done.stderr
    assert "hint: ls -l" in done.stderr


def test_programs_are_told_in_the_envelope(closed: Path, tmp_path: Path) -> None:
    done = bound_by_rights("archs", closed, "--format", "json", home=tmp_path)
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], "Permission denied" in error["message"]) == ("failed", True)


VARIABLES = [
    "HF_HOME", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "UV_CACHE_DIR",
    "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME",
]  # fmt: skip


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_machine_is_checked_whatever_may_not_be_read(variable: str, closed: Path, tmp_path: Path) -> None:
    done = bound_by_rights("check", home=tmp_path, **{variable: str(closed / "x")})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("variable", ["UV_CACHE_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"])
def test_paths_are_listed_whatever_may_not_be_read(variable: str, closed: Path, tmp_path: Path) -> None:
    done = bound_by_rights("paths", home=tmp_path, **{variable: str(closed / "x")})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_folder_and_shims_on_path_are_passed_over(closed: Path, tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    for name in ("python", "python3", "python3.12"):
        (shims / name).write_text("#!/bin/sh\nexit 127\n")
        (shims / name).chmod(0o755)
    path = f"{closed}:{shims}:/usr/bin:/bin"
    done = bound_by_rights("check", "--format", "json", home=tmp_path, PATH=path)
    found = [each["path"] for each in json.loads(done.stdout)["data"]["machine"]["pythons"]["value"]]
    assert found
    assert not [path for path in found if str(tmp_path) in path]
    named = bound_by_rights("check", "--python", "python3.12", home=tmp_path, PATH=path)
    assert (named.returncode, "is a script, not an interpreter" in named.stderr) == (2, True)


def test_a_configuration_of_pip_that_may_not_be_read_is_none(closed: Path, tmp_path: Path) -> None:
    for name in ("PIP_CONFIG_FILE", "PIP_FIND_LINKS", "XDG_CONFIG_HOME"):
        done = bound_by_rights("resolve", "--profile", "cpu", "--machine", "h200", home=tmp_path,
                               **{name: str(closed / "x"), "PIP_NO_INDEX": "1"})  # fmt: skip
        assert done.returncode == 1, done.stderr
        assert "Permission denied" not in done.stderr


@pytest.mark.parametrize("text", ["RuntimeError: CUDA error: out of memory " * 20, "a" * 300])
def test_an_error_longer_than_a_files_name_is_explained(text: str, tmp_path: Path) -> None:
    done = envdoctor("explain", text, "--format", "json", home=tmp_path)
    assert envelope(done)["exit_code"] in (0, 1)


@pytest.mark.parametrize(
    "arguments",
    [["check", "--venv"], ["check", "--python"], ["verify", "--venv"], ["verify", "--python"], ["audit"],
     ["check", "--machine"], ["train"], ["resolve", "--profile"]],
    ids=" ".join,
)  # fmt: skip
def test_a_name_that_is_too_long_is_wrong_input(arguments: list[str], tmp_path: Path) -> None:
    done = envdoctor(*arguments, f"./{'a' * 300}.toml", home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "File name too long" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["check"], ["train", "sort", "--dry-run"], ["watch"], ["abi", "."], ["report"]]
)
def test_a_folder_that_is_gone_below_the_shell_is_said(arguments: list[str], tmp_path: Path) -> None:
    words = shlex.join([sys.executable, "-m", "envdoctor", *arguments])
    done = subprocess.run(
        ["bash", "-c", f"mkdir gone; cd gone; rmdir ../gone; {words}"],
        capture_output=True, text=True, env=environment(tmp_path), cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("error: the current working directory was deleted\n"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody without a name")
@pytest.mark.parametrize("command", ["check", "envs", "train --dry-run"])
def test_a_user_without_a_home_is_told_to_name_one(command: str, tmp_path: Path) -> None:
    """As in a container that is started with a user's number alone; what root may read is kept, for Python's sake."""
    code = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(28, 4); os.setuid(54321); del os.environ['HOME']; "
        f"from envdoctor.cli import main; sys.argv[1:] = {command.split()!r}; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env=environment(tmp_path), cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "hint: export HOME=" in done.stderr, done.stderr
