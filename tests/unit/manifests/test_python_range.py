"""A range of Pythons with an upper bound, in the text of a guide, limits the Pythons that it is resolved for."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests.python_range import python_range
from envdoctor.resolution.step import NoSolver


@each_case(
    ("line", "specifier"),
    [
        ("2. Install Python (Python 3.7 - 3.9 is required for supporting Pytorch).", ">=3.7,<3.10"),
        ("- Python 3.8-3.10", ">=3.8,<3.11"),
        ("- **Python** 3.9 to 3.11", ">=3.9,<3.12"),
        ("Tested with Python 3.8 to 3.10 on Linux", ">=3.8,<3.11"),
        ("* Python >=3.8, <3.12", ">=3.8,<3.12"),
        ("* Python <= 3.10", "<3.11"),
        ("Python `<3.11`", "<3.11"),
        ("* Python >= 3.8", ""),
        ("* Python 3.8 or newer", ""),
        ("* Python 3.8 and 3.9", ""),
        ("Python 3.7 - 3.9 do not work", ""),
        ("Python 3.10 - a language", ""),
        ("python 3.10 -m venv a", ""),
        ("python train.py --n 3.8-3.10", ""),
        ("python-3.8-3.10-blue.svg", ""),
    ],
)
def test_the_range_of_a_line(line: str, specifier: str) -> None:
    assert python_range([line, "other"]) == specifier


def test_two_ranges_are_none() -> None:
    assert python_range(["Python 3.7 - 3.9", "Python 3.8 - 3.9"]) == ""


@each_case(
    ("text", "python"), [("Python 3.7 - 3.9 is required.\n", "3.9"), ("Python 3.7 is supported.\n", ""), ("", "")]
)
def test_a_set_is_for_a_permitted_python(text: str, python: str, tmp_path: Path) -> None:
    guide = text + sh("pip install torch transformers")
    audit = audit_text(guide, str(tmp_path / "README.md"), None, NoSolver()).audit
    assert audit
    assert audit.traces[0][0].permitted_python == (">=3.7,<3.10" if python else "")
    (tmp_path / "README.md").write_text(guide)
    audit = audit_text("torch\n", str(tmp_path / "requirements.txt"), None, NoSolver()).audit
    assert audit
    assert audit.traces[0][0].permitted_python == (">=3.7,<3.10" if python else "")
