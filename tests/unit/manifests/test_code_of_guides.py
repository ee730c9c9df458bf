"""Packages of a checkout that Python code of its guide imports, and modules of Google Colab in programs."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.program_imports import audit_imports


@each_case(("code", "package", "expected"), [
    ("from own import draw\ndraw()", "own", ["error"]),
    ("import own", "own", ["error"]),
    ("try:\n    import own\nexcept ImportError:\n    pass", "own", []),
    ("from other import draw", "own", []),
    ("from own.table import read", "own", ["error"]),  # the package is loaded first
    ("import own", "another", []),
])  # fmt: skip
def test_the_code_of_a_guide_imports_a_package_of_its_checkout(
    code: str, package: str, expected: list[str], tmp_path: Path
) -> None:
    root = tmp_path / f"{abs(hash((code, package)))}"
    (root / f"src/{package}").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / f"src/{package}/__init__.py").write_text(f"from {package}.figures import *\n")
    (root / f"src/{package}/figures.py").write_text("import torch\nimport plots\n")
    (root / f"src/{package}/table.py").write_text("import torch\n")
    text = f"{sh('pip install torch==2.8.0')}\n```python\n{code}\n```\n"
    assert [each.status for each in audit_imports(root / "README.md", text)] == expected


@each_case(("code", "text", "expected"), [
    ("from google.colab.patches import cv2_imshow\n", "", ["error"]),
    ("import google.colab\n", "The notebook runs on Google Colab.\n", ["warning"]),
    ("try:\n    from google.colab import drive\nexcept ImportError:\n    drive = None\n", "", []),
    ("import sys\nif 'google.colab' in sys.modules:\n    from google.colab import drive\n", "", []),
    ("from google import colab\n", "", ["error"]),
    ("import google\n", "", []),
])  # fmt: skip
def test_a_program_imports_a_module_of_colab(code: str, text: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "train.py").write_text(f"import torch\n{code}")
    guide = f"{text}{sh('pip install torch==2.8.0', 'python train.py')}"
    assert [each.status for each in audit_imports(tmp_path / "README.md", guide)] == expected
