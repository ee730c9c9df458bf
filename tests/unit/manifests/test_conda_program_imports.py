"""Names that programs import from packages whose release conda selects, or from main branches of repositories."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.program_imports import RELEASES

from envdoctor.commands.audit_file import audit_text


@each_case("step, expected", [("conda install plots", 1), ("conda install plots=0.9", 0)])
def test_conda_selects_about_the_newest_release_of_an_imported_package(
    step: str, expected: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("from plots import old\n")
    text = sh(step, "conda install scipy", "python train.py")
    solver = FixedSolver(FixedIndex(*RELEASES), {})
    result = audit_text(text, str(tmp_path / "README.md"), None, solver).result
    found = [each for each in result.findings if each.id == "RUN078"]
    assert [each.status for each in found] == ["warning"] * expected
    assert all("if conda selects this newest release" in each.message for each in found)


def test_conda_does_not_select_a_release_that_another_package_excludes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from plots import old\n")
    text = sh("conda install scipy=1.10.1", "conda install plots", "python train.py")
    index = FixedIndex(*RELEASES)
    index.requirements["plots 1.0"] = ["scipy>=1.12"]
    result = audit_text(text, str(tmp_path / "README.md"), None, FixedSolver(index, {})).result
    assert not [each for each in result.findings if each.id == "RUN078"]


@each_case("url, expected", [
    ("git+https://github.com/huggingface/plots", 1), ("git+https://github.com/huggingface/plots.git@main", 1),
    ("git+https://github.com/huggingface/plots@v0.9", 0), ("git+https://github.com/fork/plots", 0),
])  # fmt: skip
def test_the_newest_release_stands_for_a_main_branch(url: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from plots import old\n")
    text = sh("pip install torch==2.8.0", f"pip install {url}", "python train.py")
    index = FixedIndex(*RELEASES)
    solver = FixedSolver(index, {"torch": "2.8.0"})
    result = audit_text(text, str(tmp_path / "README.md"), None, solver, python="3.12").result
    found = [each for each in result.findings if each.id == "RUN078"]
    assert [each.status for each in found] == ["warning"] * expected
    assert all("if the main branch, which this step installs" in each.message for each in found)
