"""Scripts that a sentence starts, and that the checkout has under almost the same name."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

FILES = dict.fromkeys(
    (".git/HEAD", "src/data_aquisition.py", "src/model_training.py", "tools/run_benchmark.sh", "src/step_1.py"), "\n"
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    write_files(tmp_path, FILES)
    return tmp_path


def _found(clone: Path, *lines: str) -> list[tuple[str, int, str]]:
    text = "\n\n".join((*lines, sh("pip install torch==2.8.0")))
    findings = audit_text(text, str(clone / "README.md"), None, NoSolver()).result.findings
    return [(each.status, each.line, each.message) for each in findings if each.id == "RUN182"]


MISSPELLED: dict[str, str] = {  # a sentence, and the message
    "To run, `python data_acquisition.py`": "data_acquisition.py is not in the checkout; src/data_aquisition.py is",
    "Then `python3 -u src/model_trainning.py --epochs 3` trains the model.":
        "src/model_trainning.py is not in the checkout; src/model_training.py is",
    "Measure it with `bash ./tools/run-benchmark.sh all`.":
        "tools/run-benchmark.sh is not in the checkout; tools/run_benchmark.sh is",
    "Start `python modle_training.py`.": "modle_training.py is not in the checkout; src/model_training.py is",
}  # fmt: skip


@each_case("sentence", [*MISSPELLED])
def test_a_sentence_starts_a_script_of_almost_the_same_name(sentence: str, clone: Path) -> None:
    assert _found(clone, "`cd src`", sentence) == [("warning", 3, MISSPELLED[sentence])]


SOUND: dict[str, tuple[str, ...]] = {
    "a file": ("To run, `python src/model_training.py`",),
    "a file of another directory": ("`cd src`", "To run, `python model_training.py`"),
    "no file is alike": ("Then `python evaluate_model.py`.",),
    "another number": ("Then `python step_2.py`.",),
    "another word": ("Then `python model_testing.py`.",),
    "another folder": ("Then `python lib/model_trainning.py`.",),
    "a file that the reader writes": ("Save it as `my_model_training.py`", "Then `python my_model_training.py`."),
    "a file that the guide makes": ("Create the file `model_trainings.py`.", "Then `python model_trainings.py`."),
    "both are named": ("`python model_trainings.py` starts model_training.py several times.",),
    "a file that was renamed": ("The former `python model_trainings.py` starts it as well.",),
    "another project": (sh("git clone https://github.com/a/other"), "Then `python model_trainings.py`."),
    "no command": ("The code is in `model_trainings.py`.",),
}


@each_case("name", [*SOUND])
def test_sentences_that_name_other_scripts(name: str, clone: Path) -> None:
    assert not _found(clone, *SOUND[name])


def test_a_script_is_reported_once(clone: Path) -> None:
    assert len(_found(clone, "Run `python model_trainings.py`.", "Or `python model_trainings.py --fast`.")) == 1


@each_case("command, file", [
    ("bash tools/run_benchmark", "tools/run_benchmark.sh"), ("python src/step_1 --lr 1", "src/step_1.py"),
    ("bash tools/run_benchmark.sh", ""), ("python -m src", ""), ("bash tools", ""), ("sh tools/other", ""),
])  # fmt: skip
def test_a_command_leaves_out_the_suffix(command: str, file: str, clone: Path) -> None:
    found = _found(clone, sh(command), f"Execute `{command}` to start.")
    messages = [f"{file.rpartition('.')[0]} is not in the checkout; {file} is"] if file else []
    assert [(status, line) for status, line, _ in found] == ([("error", 3), ("warning", 7)] if file else [])
    assert {message for *_, message in found} == {*messages}
