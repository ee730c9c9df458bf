"""Names that programs import from packages whose release conda selects, or from main branches of repositories."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.program_imports import RELEASES
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import IndexedRelease


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


@each_case(
    ("url", "is_found"),
    [
        ("git+https://github.com/huggingface/transformers", True),
        ("git+https://github.com/huggingface/transformers@v4.36.2", False),
    ],
)
def test_a_main_branch_refuses_options_and_arguments(url: str, is_found: bool, tmp_path: Path) -> None:
    program = (
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "Trainer(args=args, tokenizer=None)\n"
    )
    write_files(tmp_path, {".git/HEAD": "", "train.py": program})
    steps = sh("pip install torch==2.8.0", f"pip install {url}", "python train.py --evaluation_strategy no")
    notebook = (
        "```python\nfrom transformers import TrainingArguments\nTrainingArguments(evaluation_strategy='no')\n```\n"
    )
    index = FixedIndex(*RELEASES, IndexedRelease("transformers", "5.24.0", "2026-10-01"))
    solver = FixedSolver(index, {"torch": "2.8.0"})
    result = audit_text(f"{steps}\n{notebook}", str(tmp_path / "README.md"), None, solver, python="3.12").result
    found = {each.id: (each.status, each.message) for each in result.findings if each.id in ("RUN200", "RUN222")}
    assert {each: status for each, (status, _) in found.items()} == (
        {"RUN200": "warning", "RUN222": "warning"} if is_found else {}
    )
    texts = {each: message for each, (_, message) in found.items()}
    assert "5.24.0, and so probably its main branch, does not have" in texts.get("RUN200", "") or not is_found
    assert "(also evaluation_strategy)" in texts.get("RUN222", "") or not is_found
