"""`python setup.py` in a directory of the checkout that has no setup.py."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

FILES = {
    "align/core.py": "\n", "align/__init__.py": "\n", "models/ops/src.cu": "\n", "models/net.py": "\n",
    "data/a.txt": "\n", "train.py": "\n", ".git/HEAD": "\n",
}  # fmt: skip
WRONG: dict[str, tuple[tuple[str, ...], str]] = {  # commands, of which the last is wrong, and a part of the fix
    "nothing to compile": (("cd align", "python setup.py build_ext --inplace"), "Leave out the step"),
    "mkdir before": (("cd align/", "mkdir align", "python3 setup.py build_ext --inplace"), "Leave out the step"),
    "sources": (("cd ./models/ops", "python setup.py install --user"), "Use the version of the project"),
    "two steps": (("cd models", "cd ops", "CC=gcc python setup.py develop"), "Use the version of the project"),
}
SOUND: dict[str, tuple[str, ...]] = {
    "the root": ("python setup.py install",),
    "a directory without code": ("cd data", "python setup.py install"),
    "a directory that is not there": ("cd apex", "python setup.py install"),
    "a directory that is not known": ("cd $ALIGN", "python setup.py install"),
    "another project": ("git clone https://github.com/o/other", "cd align", "python setup.py install"),
    "a download": ("cd align", "wget https://a.b/setup.py", "python setup.py install"),
    "a copy": ("cp other/setup.py align", "cd align", "python setup.py install"),
    "an archive": ("cd align", "unzip ops.zip", "python setup.py install"),
    "another program": ("cd align", "python setup.py --help", "python core.py install"),
    "after the return": ("cd align", "cd ..", "python setup.py install"),
}  # fmt: skip


def _found(root: Path, *commands: str, start: str = "pip install torch==2.6.0") -> list[tuple[int, str]]:
    text = sh(start, *commands)
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, NoSolver()).result.findings
    return [(each.line, each.fix) for each in found if each.id == "RUN247"]


@each_case("name", WRONG)
def test_the_directory_has_no_setup(name: str, tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    commands, fix = WRONG[name]
    ((line, found),) = _found(tmp_path, *commands)
    assert line == 3 + len(commands)
    assert found.startswith(fix)


@each_case("name", SOUND)
def test_the_steps_can_have_a_setup(name: str, tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    assert _found(tmp_path, *SOUND[name]) == []


@each_case("path", ["setup.py", "align/setup.py", "align/ext/setup.py", "other/align/setup.py"])
def test_another_directory_has_a_setup(path: str, tmp_path: Path) -> None:
    root = tmp_path / path.replace("/", "_")
    write_files(root, FILES | {path: "\n"})
    assert _found(root, "cd align", "python setup.py install") == []


def test_a_guide_without_another_step(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    assert [line for line, _ in _found(tmp_path, "python setup.py build_ext --inplace", start="cd align")] == [4]
