"""The configuration: precedence, sources, errors with file and line, and what a project must not decide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.sample_environments import add_distribution, make_venv

from envdoctor.core.config import KEYS, read_config, user_config_file
from envdoctor.core.errors import BadInput


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    return folder


def write_project(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(f'[project]\nname = "x"\n\n[tool.envdoctor]\n{text}\n')


def write_user(home: Path, text: str) -> None:
    file = user_config_file({"HOME": str(home)})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read(project: Path, home: Path, **variables: str) -> dict[str, tuple[object, str]]:
    found = read_config(project / "src", {"HOME": str(home), **variables})
    return {key: (setting.value, setting.source) for key, setting in found.items()}


def test_variable_precedes_project_precedes_user(home: Path, project: Path) -> None:
    write_user(home, 'profile = "cpu"\ncolor = "never"\nverbose = true\nmachine = "machines/a.json"\n')
    write_project(project, 'profile = "gh200"\ncolor = "always"\nignore = ["DRV", "GPU001"]')
    user, file = str(user_config_file({"HOME": str(home)})), str(project / "pyproject.toml")
    assert read(project, home, ENVDOCTOR_COLOR="auto", ENVDOCTOR_VENV="") == {
        "profile": ("gh200", f"{file}, line 5"),
        "color": ("auto", "ENVDOCTOR_COLOR"),
        "verbose": (True, f"{user}, line 3"),
        "machine": (str(Path(user).parent / "machines/a.json"), f"{user}, line 4"),
        "ignore": (("DRV", "GPU001"), f"{file}, line 7"),
    }


def test_a_project_without_the_table_is_passed_over(home: Path, project: Path) -> None:
    write_project(project, "quiet = true")
    (project / "src/pyproject.toml").write_text('[project]\nname = "inner"\n')
    assert read(project, home) == {"quiet": (True, f"{project}/pyproject.toml, line 5")}


def test_paths_are_relative_to_their_file(home: Path, project: Path) -> None:
    write_project(project, 'venv = ".venv-gpu"')
    assert read(project, home)["venv"][0] == str(project / ".venv-gpu")
    write_user(home, 'python = "~/x/bin/python"\n')
    assert set(read(project, home)) == {"venv"}  # the project precedes the user; both select the environment
    assert set(read(project, home, ENVDOCTOR_PYTHON="python3.12")) == {"python"}


@each_case(
    ("text", "error"),
    [
        ('profil = "cpu"', "line 5: unknown key profil"),
        ('\nformat = "xml"', "line 6: format is 'xml'"),
        ('quiet = "yes"', "line 5: quiet is 'yes'"),
        ('ignore = "DRV"', "line 5: ignore is 'DRV'"),
        ("venv = 3", "line 5: venv is 3"),
        ('profile = ""', "line 5: profile is ''"),
        ('python = "/usr/bin/python3"', "line 5: python names a program"),
        ('venv = "/tmp/other"', "line 5: venv is /tmp/other, but it is outside of"),
        ('venv = "../other"', "line 5: venv is ../other, but it is outside of"),
        ('profile = "./mine.toml"', "line 5: profile is './mine.toml'"),
        ('machine = "/etc/passwd"', "line 5: machine is '/etc/passwd'"),
        ("venv = [", "is not TOML"),
    ],
)
def test_errors_of_a_project_name_file_and_line(text: str, error: str, tmp_path: Path) -> None:
    write_project(tmp_path, text)
    with pytest.raises(BadInput) as raised:
        read_config(tmp_path, {"HOME": "/nonexistent"})
    assert str(tmp_path / "pyproject.toml") in raised.value.message
    assert error in raised.value.message
    assert raised.value.hint


def test_a_link_out_of_the_project_is_refused(home: Path, project: Path) -> None:
    (project / "env").symlink_to("/tmp")
    write_project(project, 'venv = "env/other"')
    with pytest.raises(BadInput, match="outside of"):
        read(project, home)


def test_an_environment_in_a_file_of_another_user_is_refused(home: Path, project: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can change the owner of a file")
    write_project(project, 'venv = "env"')
    os.chown(project / "pyproject.toml", 12345, 12345)
    with pytest.raises(BadInput, match="belongs to another user"):
        read(project, home)


def test_the_configured_environment_is_examined_unless_another_is_named(home: Path, project: Path) -> None:
    for name, version in (("mine", "1.0"), ("other", "2.0")):
        add_distribution(make_venv(project / name), "numpy", version)
    write_project(project, 'venv = "mine"')

    def numpy(*arguments: str) -> str:
        data = envelope(envdoctor("check", *arguments, "--format", "json", home=home, cwd=project / "src"))["data"]
        return str(data["stack"]["distributions"]["value"]["numpy"]["version"])

    assert numpy() == "1.0"
    assert numpy("../other") == numpy("--venv", "../other") == "2.0"
    other = str(project / "other")
    done = envdoctor("check", "--format", "json", home=home, cwd=project, ENVDOCTOR_VENV=other)
    assert envelope(done)["data"]["stack"]["distributions"]["value"]["numpy"]["version"] == "2.0"


def test_a_removal_never_acts_on_a_configured_environment(home: Path, project: Path) -> None:
    make_venv(project / "mine")
    write_project(project, 'venv = "mine"')
    for command in ("uninstall", "clean", "rollback"):
        done = envdoctor(command, *([] if command == "rollback" else ["--dry-run"]), home=home, cwd=project)
        assert "mine" not in done.stdout + done.stderr


def test_ignored_rules_are_reported(home: Path, project: Path) -> None:
    write_project(project, 'ignore = ["DRV"]')
    arguments = ("check", "--machine", "t4", "--fact", "driver.library=1.2.3")
    configured = envdoctor(*arguments, home=home, cwd=project)
    assert "DRV001" not in configured.stdout
    assert f"ignored rules: DRV ({project}/pyproject.toml, line 5)" in configured.stderr
    assert "DRV001" in envdoctor(*arguments, "--ignore", "GPU", home=home, cwd=project).stdout


def test_a_configured_environment_that_does_not_exist_is_an_error_with_its_source(home: Path, project: Path) -> None:
    write_project(project, 'venv = "missing"')
    done = envdoctor("check", home=home, cwd=project)
    assert done.returncode == 2
    assert f"{project}/pyproject.toml, line 5: venv is {project}/missing, which does not exist" in done.stderr


def test_format_and_display_apply_to_every_command(home: Path, project: Path) -> None:
    write_user(home, 'format = "json"\n')
    assert envelope(envdoctor("paths", home=home))["command"] == "paths"
    assert envdoctor("paths", "--format", "human", home=home).stdout.startswith("path")
    assert envdoctor("paths", home=home, ENVDOCTOR_FORMAT="sarif").stdout.startswith("path")  # it has no findings
    assert "\x1b[" in envdoctor("paths", "--format", "human", home=home, ENVDOCTOR_COLOR="always").stdout


def test_config_lists_every_key_with_its_source(home: Path, project: Path) -> None:
    write_project(project, 'profile = "cpu"')
    data = envelope(envdoctor("config", "--format", "json", home=home, cwd=project, ENVDOCTOR_RESOLVE=""))["data"]
    assert [entry["key"] for entry in data["keys"]] == list(KEYS)
    assert {entry["key"]: entry["source"] for entry in data["keys"] if entry["value"] is not None} == {
        "profile": f"{project}/pyproject.toml, line 5"
    }
    shown = envdoctor("config", home=home, cwd=project, ENVDOCTOR_RESOLVE="").stdout
    assert "not set" in shown
    assert "config.toml (does not exist)" in shown
