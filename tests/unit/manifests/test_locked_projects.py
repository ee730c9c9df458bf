"""The open ranges of a project whose lock names the releases."""

from __future__ import annotations

import json
from pathlib import Path

from support.cases import each_case
from support.remedies import commands_of
from support.text_files import uv_lock

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Evidence, Finding
from envdoctor.core.remedies import steps
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.locked_projects import without_unsolvable_additions
from envdoctor.manifests.inputs.steps_of_locks import step_of_lock

PROJECT = (
    '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\n'
    'dependencies = ["trl==0.23.1", "transformers>=4.56"]\n'
)
LOCK = uv_lock({"transformers": "VERSION", "trl": "0.23.1"}, ">=3.10")
SYNC = "# X\n```bash\nuv sync\n```\n"


@each_case(
    ("locked", "readme", "status"),
    [
        ("4.57.1", SYNC, "info"),
        ("4.57.1", "# X\n\nRun `uv run train`.\n", "info"),
        ("4.57.1", "# X\n\n`pip install -e .` installs it.\n", "error"),
        ("4.57.1", "# X\n```bash\nuv pip install '.[gpu]'\n```\n", "error"),
        ("4.57.1", "# X\n```bash\nuv sync\n```\nor\n```bash\npip install -e .\n```\n", "error"),
        ("5.24.0", SYNC, "error"),  # the lock has the release of today
        ("", SYNC, "error"),
    ],
)
def test_the_lock_decides_about_an_open_range(tmp_path: Path, locked: str, readme: str, status: str) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / "uv.lock").unlink(missing_ok=True)
    if locked:
        (tmp_path / "uv.lock").write_text(LOCK.replace("VERSION", locked))
    result = audit_text(PROJECT, str(tmp_path / "pyproject.toml"), None, None).result
    (found,) = [each for each in result.findings if each.id == "RUN003" and "transformers" in each.message]
    assert found.status == status
    assert bool(found.remedies) is (status == "error")
    assert ("uv.lock" in found.message) is (status == "info")


def test_a_project_that_is_installed_after_its_lock_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("# X\n```bash\nuv sync\nuv pip install -e .\n```\n")
    (tmp_path / "uv.lock").write_text(LOCK.replace("VERSION", "4.57.1"))
    findings = audit_text(PROJECT, str(tmp_path / "pyproject.toml"), None, None).result.findings
    assert not [each for each in findings if each.id == "RUN003"]


def test_a_project_without_a_solution_gets_no_uv_add() -> None:
    evidence = (Evidence("setuptools", "84", "x"),)
    other = Finding("RUN003", "", "unknown", "", evidence, "Use setuptools==69.", (steps("uv add setuptools==69")))
    none = Finding("RUN196", "", "warning", "no solution", fix="Raise it.")
    assert without_unsolvable_additions((other,)) == (other,)
    assert without_unsolvable_additions((none, other))[1].remedies == ()
    assert "RUN196" in without_unsolvable_additions((none, other))[1].fix
    kept = Finding("RUN001", "", "error", "", evidence, "Use it.", (steps("uv pip install trl==0.23.1")))
    assert without_unsolvable_additions((none, kept)) == (none, kept)


@each_case(
    ("locked", "status"),
    [("==4.57.1", "info"), ("==5.24.0", "error"), ("", "error")],
)
def test_the_lock_of_a_pipfile_decides_about_an_open_package(tmp_path: Path, locked: str, status: str) -> None:
    rows = {"transformers": {"version": locked}, "trl": {"version": "==0.23.1"}}
    (tmp_path / "Pipfile.lock").write_text(json.dumps({"_meta": {}, "default": rows}) if locked else "{")
    text = '[packages]\ntrl = "==0.23.1"\ntransformers = "*"\n'
    result = audit_text(text, str(tmp_path / "Pipfile"), None, None).result
    (found,) = [each for each in result.findings if each.id == "RUN003" and "transformers" in each.message]
    assert found.status == status
    assert ("Pipfile.lock" in found.message) is (status == "info")


def test_the_releases_of_a_lock_are_those_for_the_python_of_the_project(tmp_path: Path) -> None:
    """networkx 3.5 needs Python 3.11. A command can name another Python than .python-version."""
    (tmp_path / ".python-version").write_text("3.10\n")
    row = "\n[[package]]\nname = 'networkx'\nversion = '{}'\nsource = {{ registry = 'https://pypi.org/simple' }}\n"
    edge = "{{ name = 'networkx', version = '{}', marker = \"python_full_version {} '3.11'\" }}"
    edges = f"dependencies = [{edge.format('3.4.2', '<')}, {edge.format('3.5', '>=')}]"
    lock = uv_lock({}, ">=3.10").replace("dependencies = []", edges) + row.format("3.4.2") + row.format("3.5")
    (tmp_path / "uv.lock").write_text(lock)
    for command, version in (("uv sync", "3.4.2"), ("uv sync --python 3.11", "3.5"), ("uv sync -p3.9", "3.4.2")):
        step = step_of_lock(command.split(), 1, Files(tmp_path, "x86_64"))
        assert step
        assert [each.pin for each in step.install.requirements] == [version]


def test_two_commands_for_one_project_have_one_finding(tmp_path: Path) -> None:
    """The releases are those of pyproject.toml in both ways."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    text = "# X\n```bash\n# with uv\nuv sync\n# with pip\npip install -e .\n```\n"
    found = audit_text(text, str(tmp_path / "README.md"), None, None).result.findings
    assert [each.line for each in found if each.id == "RUN003" and "transformers" in each.message] == [6]


@each_case(("version_file", "is_reported"), [("3.11\n", False), ("3.13\n", True), ("3.9\n", False)])
def test_a_lock_is_installed_with_the_python_of_its_project(
    tmp_path: Path, version_file: str, is_reported: bool
) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / ".python-version").write_text(version_file)
    lock = uv_lock({"torch": "2.8.0", "tensorflow": "2.15.0"}, ">=3.11")
    result = audit_text(lock, str(tmp_path / "uv.lock"), None, None).result
    found = [each for each in result.findings if each.id == "PY003"]
    assert bool(found) is is_reported
    for each in found:
        assert commands_of(each) == (f"uv sync --project {tmp_path} --python 3.11",)
