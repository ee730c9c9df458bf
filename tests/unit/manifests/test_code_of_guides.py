"""Packages of a checkout that Python code of its guide imports."""

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
