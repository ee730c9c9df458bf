"""Requirements files for an environment that has the packages of another file."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.program_imports import audit_imports

FILES = {
    "train.py": "import torch, tables, numpy, yaml\nimport plots\n",
    "README.md": "```\npip install -r requirements.txt\npython train.py\n```\n",
    "requirements.txt": "tables\nnumpy\npyyaml\n",
}


@each_case(
    ("name", "text", "count"),
    [
        ("requirements_gpu.txt", "torch==2.8.0\n", 0),  # for an environment that has the others
        ("requirements_all.txt", "torch==2.8.0\ntables==1.0\nnumpy==2.3.1\npyyaml==6.0.2\n", 1),
    ],
)
def test_a_file_that_lacks_most_modules_is_for_further_packages(
    name: str, text: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    for path, content in FILES.items():
        (tmp_path / path).write_text(content)
    found = audit_imports(tmp_path / name, text, tables="1.0", numpy="2.3.1", pyyaml="6.0.2")
    assert ["imports plots" in each.message for each in found] == [True] * count


def test_the_command_for_a_missing_companion_names_its_release(tmp_path: Path) -> None:
    """torchaudio 2.11 requires no torch: without a release, it comes next to the torch 2.8 of the guide."""
    (tmp_path / ".git").mkdir()
    for path, content in FILES.items():
        (tmp_path / path).write_text(content.replace("plots", "torchaudio"))
    text = FILES["README.md"].replace("-r requirements.txt", "torch==2.8.0 tables numpy pyyaml")
    (found,) = audit_imports(tmp_path / "README.md", text, tables="1.0", numpy="2.3.1", pyyaml="6.0.2")
    assert "torchaudio==2.8.0" in found.remedies[0].commands[0]
