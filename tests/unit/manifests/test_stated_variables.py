"""Variables of files of the checkout that a guide tells a reader to set."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name, text in {
        ".git/config": "",
        "run/inference.ipynb": '{"source": "MODEL_NAME = 1"}',
        "train.py": "DATA_DIR = 1\nSTEP_SIZE = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def _found(clone: Path, text: str) -> list[Finding]:
    guide = sh("pip install torch==2.8.0") + text
    (clone / "README.md").write_text(guide)
    found = audit_text(guide, str(clone / "README.md"), None, None).result.findings
    return [each for each in found if each.id == "RUN234"]


ABSENT = {
    "Set `MODEL_PATH` in `run/inference.ipynb`.": "Set MODEL_NAME",
    "Reopen the inference notebook.\nSet the `MODEL_PATH` variable.": "Set MODEL_NAME",
    "Change `DATA_PATH` in [train.py](train.py).": "Set DATA_DIR",
}
PRESENT = (
    "Set `MODEL_NAME` in `run/inference.ipynb`.", "Set `STEP_SIZE` in `run/inference.ipynb`.",
    "Set the environment variable `MODEL_PATH` for `train.py`.", "Set `MODEL_PATH` in `other.py`.",
    "Set the `MODEL_PATH` variable.", "`DATA_PATH` is in `train.py`.", "Set `HF_DATA_DIR` for `train.py`.",
    "Set `DATA_PATH` in `train.py`, `run/inference.ipynb`.", "Set `UNLIKE_OTHERS` in `train.py`.",
    "Open the other notebook.\nSet the `MODEL_PATH` variable.",
)  # fmt: skip


@each_case("text", [*ABSENT])
def test_a_variable_that_the_file_does_not_have(text: str, clone: Path) -> None:
    (found,) = _found(clone, text)
    assert found.status == "warning"
    assert ABSENT[text] in found.fix


@each_case("text", list(PRESENT))
def test_a_variable_that_the_file_has_or_that_is_not_of_a_file(text: str, clone: Path) -> None:
    assert not _found(clone, text)
