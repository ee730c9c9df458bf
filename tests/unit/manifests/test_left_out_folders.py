"""Guides that leave out `cd`: the only file of a name is read in the directory that has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import AuditResult, audit_text
from envdoctor.resolution.step import NoSolver

INSTALL = "pip install -r requirements.txt"
CONDA = "name: own\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n    - trl==0.23.9\n"
FILES = {
    "own/.git/HEAD": "",
    "own/tuner/requirements.txt": "trl==0.23.9\n",  # no release
    "own/tuner/scripts/train.py": "import trl\n",
    "own/tuner/conda.yaml": CONDA,
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    write_files(tmp_path, FILES)
    return tmp_path / "own"


def _audit(clone: Path, *commands: str, text: str = "") -> AuditResult:
    text = sh("pip install torch==2.8.0", *commands) + text
    return audit_text(text, str(clone / "README.md"), None, NoSolver()).result


def _is_read(result: AuditResult) -> bool:
    was_read = "RUN001" in {each.id for each in result.findings}
    assert was_read == any(each.message.endswith("was read in its place") for each in result.findings)
    return was_read


READ: dict[str, tuple[tuple[str, ...], str]] = {  # the commands, and the file that was read
    "the requirements": ((INSTALL,), "requirements.txt"),
    "the own clone is entered": (("git clone https://github.com/me/own", "cd own", INSTALL), "requirements.txt"),
    "variables": (("export HF_HOME=cache", INSTALL, "python scripts/train.py"), "requirements.txt"),
    "conda": (("conda env create -f conda.yaml", "conda activate own"), "conda.yaml"),
}


@each_case("name", [*READ])
def test_the_only_file_is_read(name: str, clone: Path) -> None:
    commands, file = READ[name]
    result = _audit(clone, *commands)
    assert _is_read(result)
    assert not [each for each in result.coverage.unread if "not found" in each]
    line = next(number for number, each in enumerate(("", "", "", *commands), 1) if file in each)
    message = f"{file} is not in the checkout; tuner/{file} is, and was read in its place"
    found = [(each.status, each.line, each.message) for each in result.findings if each.id == "RUN207"]
    assert found == [("warning", line, message)]


OTHERS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {  # the commands, and further files
    "a project in the root": ((INSTALL,), {"pyproject.toml": "[project]\nname = 'own'\n"}),
    "another list in the root": ((INSTALL,), {"requirements-dev.txt": "ruff\n"}),
    "an environment in the root": ((INSTALL,), {"environment.yml": "name: own\n"}),
    "several files": ((INSTALL,), {"demo/requirements.txt": "gradio\n"}),
    "the documentation": (("pip install -r needs.txt",), {"docs/needs.txt": "trl==0.23.9\n"}),
    "a clone of another project": (("git clone https://github.com/a/other", INSTALL), {}),
    "a directory of another project": (("git clone https://github.com/a/other", "cd other", INSTALL), {}),
    "a copy": (("cp list.txt requirements.txt", INSTALL), {}),
    "a compiled list": (("pip-compile requirements.in", INSTALL), {}),
    "a directory that the guide enters": (("cd web", INSTALL), {"web/main.js": ""}),
    "an ignored file": ((INSTALL,), {".gitignore": "requirements.txt\n"}),
}


@each_case("name", [*OTHERS])
def test_files_that_are_not_read(name: str, clone: Path) -> None:
    commands, files = OTHERS[name]
    write_files(clone, files)
    assert not _is_read(_audit(clone, *commands))


def test_the_file_that_the_guide_names_is_read(clone: Path) -> None:
    for commands in (("cd tuner", INSTALL), ("pip install -r tuner/requirements.txt",)):
        findings = {each.id for each in _audit(clone, *commands).findings}
        assert "RUN001" in findings
        assert "RUN207" not in findings


def test_a_directory_without_git(clone: Path) -> None:
    (clone / ".git/HEAD").unlink()
    (clone / ".git").rmdir()
    assert not _is_read(_audit(clone, INSTALL))  # it can have several projects
    assert _is_read(_audit(clone, INSTALL, text="\n- tuner/: the code\n"))
