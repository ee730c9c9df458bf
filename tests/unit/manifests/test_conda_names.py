"""The names of conda environments that steps create and activate."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding

FILE = "name: bar\ndependencies:\n- python=3.10\n- pip:\n  - torch==2.6.0\n"
CREATE, OF_FILE = "conda create -n bar python=3.10 -y", "conda env create -f environment.yml"
TORCH = "pip install torch==2.6.0"


def _found(root: Path, *commands: str, **files: str) -> list[Finding]:
    text = sh(*commands)
    write_files(root, {".git/HEAD": "\n", "environment.yml": FILE, "README.md": text, **files})
    found = audit_text(text, str(root / "README.md"), None, None).result.findings
    return [each for each in found if each.id == "RUN279"]


OTHER = {
    "a command": (CREATE, "conda activate foo", TORCH),
    "a file": (OF_FILE, "conda activate foo", TORCH),
}
SAME: dict[str, tuple[str, ...]] = {
    "the name": (CREATE, "conda activate bar", TORCH),
    "the name of the file": (OF_FILE, "conda activate bar", TORCH),
    "a name for the file": (f"{OF_FILE} -n foo", "conda activate foo", TORCH),
    "the first environment": (CREATE, "conda activate base", TORCH),
    "two environments": (CREATE, "conda create -n foo python=3.9", "conda activate foo", TORCH),
    "a placeholder": (CREATE, "conda activate your_env", TORCH),
    "a variable": (CREATE, "conda activate $NAME", TORCH),
    "none": ("conda activate foo", TORCH),
    "a directory": ("conda create -p ./env python=3.10", "conda activate ./env", TORCH),
}


@each_case("name", [*OTHER])
def test_another_environment_is_activated(name: str, tmp_path: Path) -> None:
    (found,) = _found(tmp_path, *OTHER[name])
    assert (found.status, found.line, found.fix) == ("warning", 4, "Activate bar.")
    assert found.remedies[0].commands == ("conda activate bar",)


@each_case("name", [*SAME])
def test_the_environment_is_the_created_one(name: str, tmp_path: Path) -> None:
    assert not _found(tmp_path, *SAME[name])


def test_another_text_creates_the_environment(tmp_path: Path) -> None:
    assert not _found(tmp_path, *OTHER["a command"], **{"INSTALL.md": "conda create --name foo\n"})
