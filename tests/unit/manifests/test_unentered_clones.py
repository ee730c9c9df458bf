"""Steps that clone their own project and do not enter it."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

CLONE = "git clone https://github.com/org/Project.git"
WRONG: dict[str, tuple[tuple[str, ...], int]] = {
    "a requirements file": ((CLONE, "pip install -r requirements.txt"), 4),
    "a folder": (("git clone --recursive https://github.com/org/project", "cd parts/app", "pip install -r a.txt"), 4),
    "an environment": ((CLONE, "conda env create -f environment.yml", "cd Project"), 4),
    "a script": ((f"{CLONE} work", "pip install torch==2.6.0", "python train.py --lr 1"), 5),
}
SOUND: dict[str, tuple[str, ...]] = {
    "a step that enters": (CLONE, "cd Project", "pip install -r requirements.txt"),
    "a clone here": (f"{CLONE} .", "pip install -r requirements.txt"),
    "a path with the clone": (CLONE, "pip install -r Project/requirements.txt", "python Project/train.py"),
    "a folder of the clone": (CLONE, "cd Project/parts/app", "python train.py"),
    "another project": ("git clone https://github.com/org/other", "pip install -r requirements.txt"),
    "another file": (CLONE, "pip install -r other.txt", "cd ..", "rm -f requirements.txt"),
    "a model": ("git clone https://huggingface.co/org/Project", "pip install -r requirements.txt"),
    "a directory of a reader": (f"{CLONE} /path/to/project", "python train.py"),
    "a variable": (CLONE, "cd $DIR", "pip install -r requirements.txt"),
}


def _lines(tmp_path: Path, text: str) -> list[int]:
    root = tmp_path / "Project"
    (root / ".git").mkdir(parents=True, exist_ok=True)
    (root / "parts" / "app").mkdir(parents=True, exist_ok=True)
    for name in ("requirements.txt", "environment.yml", "train.py", "parts/app/run.py"):
        (root / name).write_text("torch\n" if name.endswith("txt") else "\n")
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, NoSolver()).result.findings
    return [each.line for each in found if each.id == "RUN246"]


@each_case("name", WRONG)
def test_steps_do_not_enter_their_clone(name: str, tmp_path: Path) -> None:
    lines, expected = WRONG[name]
    assert _lines(tmp_path, sh(*lines)) == [expected]


@each_case("name", SOUND)
def test_steps_that_find_their_files_have_no_finding(name: str, tmp_path: Path) -> None:
    assert _lines(tmp_path, sh(*SOUND[name], "pip install torch==2.6.0")) == []


def test_a_later_block_can_be_run_in_the_clone(tmp_path: Path) -> None:
    text = sh(CLONE) + "\nEnter the directory, and then:\n" + sh("pip install -r requirements.txt", title="")
    assert _lines(tmp_path, text) == []
