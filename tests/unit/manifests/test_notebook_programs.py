"""Notebooks without install commands: the project file next to them names the packages of their imports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.program_imports import RELEASES
from support.text_files import uv_lock, write_files

from envdoctor.commands.audit_directory import audit_directory
from envdoctor.commands.audit_file import AuditResult, audit_text
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.output.audit import coverage_text

CODE = ("import torch\nx = 1\nx = 1\n", "%matplotlib inline\nif x:\n    !ls\nimport plots\n")


def _notebook(*cells: str, indent: int | None = 1, **metadata: object) -> str:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": code, "metadata": metadata, "nbformat": 4}, indent=indent)


def _audit(folder: Path, text: str) -> AuditResult:
    path = folder / "docs/example.ipynb"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    solver = FixedSolver(FixedIndex(*RELEASES), {"torch": "2.8.0"})
    return audit_text(text, str(path), None, solver, python="3.12").result


@pytest.mark.parametrize("manifest", ["requirements.txt", "setup.py", "docs/requirements.txt"])
def test_a_notebook_imports_what_its_project_does_not_require(manifest: str, checkout: Path) -> None:
    text = "from setuptools import setup\nsetup(install_requires=['torch==2.8.0'])\n"
    (checkout / "docs").mkdir()
    (checkout / manifest).write_text(text if manifest == "setup.py" else "torch==2.8.0\n")
    notebook = _notebook(*CODE)
    result = _audit(checkout, notebook)
    (found,) = result.findings
    assert (found.id, found.status) == ("RUN181", "warning")
    assert notebook.split("\n")[found.line - 1].strip().startswith('"import plots')
    assert f"those of {manifest}, as no cell installs packages" in coverage_text(result)


COMPLETE: dict[str, tuple[str, dict[str, str]]] = {  # a notebook, and files of the checkout
    "a requirement": (_notebook(*CODE), {"requirements.txt": "torch==2.8.0\nplots\n"}),
    "another file of the project": (_notebook(*CODE), {"docs/requirements.in": "plots\n"}),
    "a package of the kernel": (_notebook("import torch", "from IPython import display"), {}),
    "a module of the project": (_notebook("import torch", "import project.data"), {"project/figures.py": ""}),
    "a handler": (_notebook("import torch", "try:\n    import plots\nexcept ImportError:\n    pass"), {}),
    "one line": (_notebook(*CODE, indent=None), {}),
}


@each_case("name", [*COMPLETE])
def test_a_notebook_that_lacks_nothing(name: str, checkout: Path) -> None:
    text, files = COMPLETE[name]
    write_files(checkout, {"requirements.txt": "torch==2.8.0\n"} | files)
    assert not _audit(checkout, text).findings
    if name == "another file of the project":
        (checkout / "docs/requirements.in").unlink()


def test_a_problem_of_the_packages_is_named_once(checkout: Path) -> None:
    """The code is judged with these packages: without a word, a set that does not exist would be sound."""
    (checkout / "requirements.txt").write_text("torch==2.8.0\nplots\ntransformers==4.99.0\n")
    (found,) = _audit(checkout, _notebook(*CODE)).findings
    assert found.message.startswith("the packages of its project have a problem: ")
    assert not found.remedies  # they are those of the other file


@each_case("text", [_notebook(*CODE, colab={}), _notebook(*CODE, "!bash setup.sh")])
def test_a_notebook_of_another_environment(text: str, checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("torch==2.8.0\n")
    with pytest.raises(NothingToAudit):
        _audit(checkout, text)


def test_a_notebook_without_a_project(checkout: Path) -> None:
    with pytest.raises(NothingToAudit):
        _audit(checkout, _notebook(*CODE))


def test_the_audit_of_a_directory_leaves_out_notebooks_that_install_nothing(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("torch==2.8.0\n")
    (checkout / "a.ipynb").write_text(_notebook(*CODE[:1]))
    (checkout / "b.ipynb").write_text(_notebook("%pip install torch==2.8.0\nimport torch"))
    found = audit_directory(str(checkout), None, None)
    assert [Path(each).name for each in found.skipped] == ["a.ipynb"]
    assert [Path(each.name).name for each in found.audits] == ["b.ipynb", "requirements.txt"]


@pytest.mark.parametrize(("manifest", "text", "count"), [
    ("environment.yml", "name: x\ndependencies:\n  - bitsandbytes\n", 0),
    ("docs/requirements.txt", "bitsandbytes==0.49.2\n", 0),
    ("pyproject.toml", "[project]\nname = 'own'\nversion = '1'\ndependencies = ['bitsandbytes']\n", 0),
    ("requirements.txt", "numpy==2.2.6\n", 1),
])  # fmt: skip
def test_the_kernel_can_have_the_packages_of_the_project(
    manifest: str, text: str, count: int, checkout: Path
) -> None:
    (checkout / "docs").mkdir()
    (checkout / manifest).write_text(text)
    notebook = _notebook("!pip install torch==2.8.0 transformers==4.57.1", "!python -m bitsandbytes")
    found = [each for each in _audit(checkout, notebook).findings if each.id == "RUN066"]
    assert len(found) == count


def test_the_kernel_that_ran_a_notebook_last_is_not_the_python_of_its_project(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("numpy==1.26.4\n")
    text = _notebook("import numpy", "x = 1", language_info={"version": "3.13.1"})
    path = checkout / "example.ipynb"
    path.write_text(text)
    assert not audit_text(text, str(path), None, None).result.findings


LOCK = uv_lock({"torch": "2.7.0", "plots": "1"})


@each_case(
    ("readme", "missing"),
    [("# X\n```bash\nuv sync\n```\n", 0), ("# X\n", 0), ("# X\n```bash\npip install -e .\n```\n", 1)],
)
def test_the_lock_of_the_project_has_the_packages(readme: str, missing: int, checkout: Path) -> None:
    """The lock has plots, which the open requirements do not name."""
    (checkout / "README.md").write_text(readme)
    (checkout / "uv.lock").write_text(LOCK)
    (checkout / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n')
    result = _audit(checkout, _notebook(*CODE))
    assert [each.id for each in result.findings] == ["RUN181"] * missing
    assert f"those of {'pyproject.toml' if missing else 'uv.lock'}, as no cell" in coverage_text(result)


@each_case("cells, named, is_found", [
    (("!pip install torch==2.8.0", "import torch\nimport plots\n"), "", True),
    (("!pip install torch==2.8.0", "import torch\nimport plots\n"), "plots-inline==1.0\n", True),
    (("!pip install torch==2.8.0", "import torch\nimport plots\n"), "plots==1.0\n", False),
    (("!pip install torch==2.8.0", "import torch\nfrom IPython import display\n"), "", False),
    (("!pip install torch==2.8.0", "import plots, tables\n"), "", False),  # most are those of the kernel
    (("!pip install chain", "import torch\nimport plots, chain\n"), "", False),  # and so is torch
])  # fmt: skip
def test_a_notebook_with_install_cells(cells: tuple[str, ...], named: str, is_found: bool, checkout: Path) -> None:
    (checkout / "requirements.txt").write_text(f"torch==2.8.0\n{named}")
    found = [each for each in _audit(checkout, _notebook(*cells)).findings if each.id == "RUN181"]
    assert [(each.status, "the kernel of the notebook" in each.message) for each in found] == [
        ("unknown", True)
    ] * is_found


@each_case(
    ("name", "version", "hub", "status"),
    [
        ("colab", "5.2.0", "0.36.2", ["unknown"]),  # it has 4.0.0, which accepts this huggingface-hub
        ("other", "5.2.0", "0.36.2", ["warning"]),
        ("colab", "5.2.0", "0.20.3", ["warning"]),  # 4.0.0 does not accept this one either
    ],
)
def test_a_dependency_that_the_service_has_is_not_certain(
    name: str, version: str, hub: str, status: list[str]
) -> None:
    notebook = _notebook(f"!pip install huggingface-hub=={hub} trl==0.8.6\nimport trl", **{name: {}})
    solver = FixedSolver(FixedIndex(), {"trl": "0.8.6", "datasets": version, "huggingface-hub": hub})
    solver.required, solver.requiring = ["datasets"], ("trl",)
    found = audit_text(notebook, "a.ipynb", None, solver, python="3.12").result.findings
    assert [each.status for each in found if each.id == "RUN003" and "datasets 5" in each.message] == status
