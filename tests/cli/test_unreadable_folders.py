"""Unreadable folders on PATH, in variables and in arguments are reported and cause no internal error."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import envdoctor, envelope, environment, interpreter


@pytest.fixture
def unreadable_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "python3.12").symlink_to(sys.executable)
    (folder / "mine.toml").write_text("")
    folder.chmod(0)
    yield folder
    folder.chmod(0o755)


# Removes the capabilities by which root ignores file permissions, from this process and from the programs it starts.
WITHOUT_OVERRIDE = """
import ctypes, sys
from envdoctor.cli import main
library = ctypes.CDLL(None)
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert library.capget(header, sets) == 0
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    library.prctl(24, capability)  # PR_CAPBSET_DROP
    for number in range(3):  # effective, permitted, inheritable
        sets[number] &= ~(1 << capability)
assert library.capset(header, sets) == 0
main()
"""


def run_without_override(*arguments: str | Path, home: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run one command without the capabilities by which root ignores file permissions."""
    return subprocess.run(
        [interpreter(), "-c", WITHOUT_OVERRIDE, *map(str, arguments)],
        capture_output=True, text=True, env=environment(home, **extra), cwd=home, timeout=120, check=False,
    )  # fmt: skip


def test_permissions_apply_without_override(unreadable_folder: Path, tmp_path: Path) -> None:
    """Also to the programs that a command starts."""
    code = WITHOUT_OVERRIDE.replace("main()", "import subprocess; sys.exit(subprocess.call(['ls', sys.argv[1]]))")
    done = subprocess.run([interpreter(), "-c", code, str(unreadable_folder)], capture_output=True, text=True,
                          env=environment(tmp_path), check=False)  # fmt: skip
    assert (done.returncode, "Permission denied" in done.stderr) == (2, True), done.stderr


ARGUMENTS = [
    ["check", "--venv", "{unreadable_folder}"],
    ["check", "--venv", "{unreadable_folder}/venv"],
    ["check", "--python", "{unreadable_folder}/python3.12"],
    ["verify", "--venv", "{unreadable_folder}"],
    ["verify", "--python", "{unreadable_folder}/python3.12"],
    ["train", "sort", "--venv", "{unreadable_folder}/venv"],
    ["train", "sort", "--python", "{unreadable_folder}/python3.12", "--dry-run"],
    ["train", "{unreadable_folder}/mine.toml"],
    ["resolve", "--profile", "{unreadable_folder}/mine.toml"],
    ["audit", "{unreadable_folder}"],
    ["audit", "{unreadable_folder}/SETUP.md"],
    ["explain", "{unreadable_folder}/train.log"],
    ["check", "--machine", "{unreadable_folder}/machine.json"],
    ["check", "--from-report", "{unreadable_folder}/report.txt"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_an_unreadable_argument_is_bad_input(arguments: list[str], unreadable_folder: Path, tmp_path: Path) -> None:
    done = run_without_override(
        *(each.format(unreadable_folder=unreadable_folder) for each in arguments), home=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert "Permission denied" in done.stderr
    assert "closed" in done.stderr
    assert "hint: " in done.stderr


PLACES = [
    ["install", "--profile", "cpu", "--venv", "{unreadable_folder}/venv"],
    ["install", "--profile", "cpu", "--from", "{unreadable_folder}"],
    ["archs", "{unreadable_folder}"],
    ["fetch", "--profile", "cpu", "--dest", "{unreadable_folder}/wheels"],
    ["uninstall", "--venv", "{unreadable_folder}/venv"],
]


@pytest.mark.parametrize("arguments", PLACES, ids=" ".join)
def test_inaccessible_folder_is_reported(arguments: list[str], unreadable_folder: Path, tmp_path: Path) -> None:
    done = run_without_override(
        *(each.format(unreadable_folder=unreadable_folder) for each in arguments), home=tmp_path
    )
    assert done.returncode == 3
    assert f"error: {unreadable_folder}" in done.stderr
    assert "Permission denied" in done.stderr
    assert "hint: ls -l" in done.stderr


def test_the_json_envelope_has_the_error(unreadable_folder: Path, tmp_path: Path) -> None:
    done = run_without_override("archs", unreadable_folder, "--format", "json", home=tmp_path)
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], "Permission denied" in error["message"]) == ("failed", True)


VARIABLES = [
    "HF_HOME", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "UV_CACHE_DIR",
    "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME",
]  # fmt: skip


@pytest.mark.parametrize("variable", VARIABLES)
def test_check_works_with_unreadable_folders(variable: str, unreadable_folder: Path, tmp_path: Path) -> None:
    done = run_without_override("check", home=tmp_path, **{variable: str(unreadable_folder / "x")})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("variable", ["UV_CACHE_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"])
def test_paths_works_with_unreadable_folders(variable: str, unreadable_folder: Path, tmp_path: Path) -> None:
    done = run_without_override("paths", home=tmp_path, **{variable: str(unreadable_folder / "x")})
    assert (done.returncode, done.stderr) == (0, "")


def test_unreadable_folders_and_shims_on_path_are_skipped(unreadable_folder: Path, tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    for name in ("python", "python3", "python3.12"):
        (shims / name).write_text("#!/bin/sh\nexit 127\n")
        (shims / name).chmod(0o755)
    path = f"{unreadable_folder}:{shims}:/usr/bin:/bin"
    done = run_without_override("check", "--format", "json", home=tmp_path, PATH=path)
    found = [each["path"] for each in json.loads(done.stdout)["data"]["machine"]["pythons"]["value"]]
    assert found
    assert not [path for path in found if str(tmp_path) in path]
    named = run_without_override("check", "--python", "python3.12", home=tmp_path, PATH=path)
    assert (named.returncode, "is a script, not an interpreter" in named.stderr) == (2, True)


def test_an_unreadable_pip_configuration_is_ignored(unreadable_folder: Path, tmp_path: Path) -> None:
    for name in ("PIP_CONFIG_FILE", "PIP_FIND_LINKS", "XDG_CONFIG_HOME"):
        done = run_without_override("resolve", "--profile", "cpu", "--machine", "h200", home=tmp_path,
                               **{name: str(unreadable_folder / "x"), "PIP_NO_INDEX": "1"})  # fmt: skip
        assert done.returncode == 1, done.stderr
        assert "Permission denied" not in done.stderr


@pytest.mark.parametrize("text", ["RuntimeError: CUDA error: out of memory " * 20, "a" * 300])
def test_an_error_text_longer_than_a_file_name_is_explained(text: str, tmp_path: Path) -> None:
    done = envdoctor("explain", text, "--format", "json", home=tmp_path)
    assert envelope(done)["exit_code"] in (0, 1)


@pytest.mark.parametrize(
    "arguments",
    [["check", "--venv"], ["check", "--python"], ["verify", "--venv"], ["verify", "--python"], ["audit"],
     ["check", "--machine"], ["train"], ["resolve", "--profile"]],
    ids=" ".join,
)  # fmt: skip
def test_a_file_name_that_is_too_long_is_bad_input(arguments: list[str], tmp_path: Path) -> None:
    done = envdoctor(*arguments, f"./{'a' * 300}.toml", home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "File name too long" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["check"], ["train", "sort", "--dry-run"], ["watch"], ["abi", "."], ["report"]]
)
def test_a_deleted_working_directory_is_reported(arguments: list[str], tmp_path: Path) -> None:
    words = shlex.join([interpreter(), "-m", "envdoctor", *arguments])
    done = subprocess.run(
        ["bash", "-c", f"mkdir gone; cd gone; rmdir ../gone; {words}"],
        capture_output=True, text=True, env=environment(tmp_path), cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("error: the current working directory was deleted\n"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the user id")
@pytest.mark.parametrize("command", ["check", "envs", "train --dry-run"])
def test_a_user_without_a_home_directory_gets_a_hint(command: str, tmp_path: Path) -> None:
    """As in a container that is started with a numeric user id. Root's read permission is kept for Python itself."""
    code = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(28, 4); os.setuid(54321); del os.environ['HOME']; "
        f"from envdoctor.cli import main; sys.argv[1:] = {command.split()!r}; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],  # another user's process cannot reach a fork server
        capture_output=True, text=True, env=environment(tmp_path), cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "hint: export HOME=" in done.stderr, done.stderr
