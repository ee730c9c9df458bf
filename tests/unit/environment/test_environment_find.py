"""Selection of the environment to examine, and errors for wrong paths."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.sample_environments import make_venv

from envdoctor.core.errors import BadInput
from envdoctor.environment.find import EnvironmentSelection, find_environment
from envdoctor.environment.layout import read_layout


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_venv(tmp_path / "venv")
    return tmp_path / "venv"


def found(environ: dict[str, str], *installed: Path, own: Path = Path("/own")) -> tuple[str, str]:
    selection = find_environment("", "", environ, installed=lambda: installed, own=own)
    return selection.path, selection.reason


def test_named_environment_precedes_the_active_one(venv: Path, tmp_path: Path) -> None:
    make_venv(tmp_path / "active")
    environ = {"VIRTUAL_ENV": str(tmp_path / "active")}
    assert find_environment(str(venv), "", environ) == EnvironmentSelection(str(venv), "--venv")
    assert find_environment("", str(venv / "bin/python"), environ) == EnvironmentSelection(str(venv), "--python")
    assert find_environment("", "venv", {}).path == str(venv)
    assert found(environ, venv) == (str(tmp_path / "active"), "active: $VIRTUAL_ENV")


def test_project_environment_precedes_the_installed_ones(venv: Path, tmp_path: Path) -> None:
    stale = {"VIRTUAL_ENV": "/gone", "CONDA_PREFIX": "/gone/too"}
    assert found(stale) == ("", "no active one, and no .venv in this directory")
    assert found(stale, venv) == (str(venv), "installed by envdoctor")
    selection = find_environment("", "", stale, installed=lambda: [venv, tmp_path / "older"])
    assert selection.reason == "installed by envdoctor, the newest of 2"
    assert selection.others == (str(tmp_path / "older"),)
    make_venv(tmp_path / ".venv")
    assert found(stale, venv) == (str(tmp_path / ".venv"), ".venv in this directory")


def test_envdoctors_own_environment_is_skipped_unless_torch_is_in_it(venv: Path, tmp_path: Path) -> None:
    own = tmp_path / ".venv"
    make_venv(own)
    (tmp_path / "link").symlink_to(own)
    for environ in ({}, {"VIRTUAL_ENV": str(own)}, {"VIRTUAL_ENV": str(tmp_path / "link")}):
        assert found(environ, own=own) == ("", f"{own} is envdoctor's own")
        assert found(environ, venv, own=own) == (str(venv), "installed by envdoctor")
    assert find_environment(str(own), "", {}, own=own).path == str(own)
    (own / "lib/python3.12/site-packages/torch").mkdir(parents=True)
    (own / "lib/python3.12/site-packages/torch/version.py").touch()
    assert found({}, venv, own=own) == (str(own), ".venv in this directory")


def test_conda_base_without_torch_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "conda/lib/python3.12/site-packages"
    for folder in ("conda-meta", "condabin"):
        (tmp_path / "conda" / folder).mkdir(parents=True)
    environ = {"CONDA_PREFIX": str(tmp_path / "conda")}
    assert found(environ)[0] == ""
    (site / "torch").mkdir(parents=True)
    (site / "torch/version.py").touch()
    assert found(environ) == (str(tmp_path / "conda"), "active: $CONDA_PREFIX")


def test_interpreter_outside_of_environments() -> None:
    assert find_environment("", "/usr/bin/python3", {}).path == "/usr/bin/python3"
    assert find_environment("", "python3", {"PATH": "/usr/bin"}).path == "/usr/bin/python3"


@pytest.mark.parametrize(
    ("venv_text", "python_text", "problem", "hint"),
    [
        ("gone", "", "No such file", "--venv PATH"),
        ("a\0b", "", "null", "--venv PATH"),
        ("", "gone/python", "No such file", "--python PATH"),
        ("", "no-such-python", "not on PATH", "--python PATH"),
        ("", "shim", "is a script", "sys.executable"),
        ("", "./shim", "is a script", "sys.executable"),
        ("", "./text", "is not an executable", "--python PATH"),
        ("", ".", "is a directory", "--venv ."),
        ("text", "", "is a file", "--python text"),
        ("empty", "", "no pyvenv.cfg", "--venv PATH"),
        ("venv/bin", "", "is an environment", "/venv"),
        ("venv", "./shim", "cannot be combined with --python", "--venv PATH"),
    ],
)
def test_wrong_path(  # noqa: PLR0917
    venv: Path, tmp_path: Path, venv_text: str, python_text: str, problem: str, hint: str
) -> None:
    (tmp_path / "shim").write_text("#!/bin/sh\nexec python3\n")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput) as caught:
        find_environment(venv_text, python_text, {"PATH": "/usr/bin"})
    assert problem in caught.value.message
    assert caught.value.expected
    assert hint in caught.value.hint


def test_layout_agrees_with_the_running_python() -> None:
    layout = read_layout(Path(find_environment("", sys.executable, {}).path), {})
    assert layout.version.value == ".".join(map(str, sys.version_info[:3]))
    folders = {str(folder.path) for folder in layout.folders}
    assert folders & set(sys.path)


def test_folders_are_in_the_order_of_sys_path(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "v", settings="include-system-site-packages = true\n")
    user = tmp_path / ".local/lib/python3.11/site-packages"
    environ = {"HOME": str(tmp_path), "PYTHONPATH": f"{tmp_path}/first:"}
    paths = [folder.path for folder in read_layout(tmp_path / "v", environ).folders]
    assert paths[:3] == [tmp_path / "first", site, user]
    assert all(str(path).startswith("/usr/") for path in paths[3:])
    assert user not in [f.path for f in read_layout(tmp_path / "v", environ | {"PYTHONNOUSERSITE": "1"}).folders]
