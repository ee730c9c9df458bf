"""Names of the standard library that a Python version removed, or does not have yet."""

from __future__ import annotations

import sys
from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import py, sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.knowledge.standard_library import find_name, later_names, removed_names
from envdoctor.resolution.index_facts import IndexedRelease, RemovedImport

OLD = IndexedRelease("attrs-of", "2.0.1", "2019-02-01")
GIT = "uv pip install git+https://github.com/an-org/vision-language.git"
PACKAGES: dict[str, tuple[str, str, str]] = {
    "named": ("uv venv --python 3.10", "collections.Mapping", "error"),
    "a repository can set it": (f"uv venv --python 3.10 && {GIT}", "collections.Mapping", "info"),
    "a module next to a repository": (f"uv venv --python 3.12 && {GIT}", "imp", "error"),
    "setuptools of conda": ("conda create -n x python=3.12 -y && conda activate x", "distutils", ""),
    "no setuptools": ("uv venv --python 3.12", "distutils", "error"),
}


@each_case("name", [*PACKAGES])
def test_a_package_imports_what_python_removed(name: str) -> None:
    environment, removed, status = PACKAGES[name]
    solver = FixedSolver(FixedIndex(), {"attrs-of": "2.0.1"})
    solver.index.removed = [RemovedImport(OLD, removed, "Python 3.10", "attrs_of/mapping.py:4", "attrs_of.whl")]
    found = findings(sh(*environment.split(" && "), "pip install attrs-of"), solver, "RUN134")
    assert [each.status for each in found] == ([status] if status else [])
    assert all(f"imports {removed}, which Python 3.10 removed" in each.message for each in found)


PATCHES: dict[str, tuple[str, str]] = {
    "each name of the module": ("for name in collections.abc.__all__:\n    setattr(collections, name, 1)\n", "info"),
    "the name": ("collections.Mapping = collections.abc.Mapping\n", "info"),
    "a comparison": ("same = collections.Mapping == dict\n", "error"),
    "another name": ("collections.Sized = collections.abc.Sized\n", "error"),
}


@each_case("name", [*PATCHES])
def test_code_of_the_checkout_sets_what_python_removed(name: str, tmp_path: Path) -> None:
    code, status = PATCHES[name]
    write_files(tmp_path, {"model/__init__.py": f"import collections.abc\n{code}"})
    solver = FixedSolver(FixedIndex(), {"attrs-of": "2.0.1"})
    solver.index.removed = [RemovedImport(OLD, "collections.Mapping", "Python 3.10", "a/b.py:4", "attrs_of.whl")]
    text = sh("uv venv --python 3.12", "pip install attrs-of")
    found = audit_text(text, str(tmp_path / "README.md"), None, solver).result.findings
    found = [each for each in found if each.id == "RUN134"]
    assert [each.status for each in found] == [status]
    assert ("unless model/__init__.py sets it first" in found[0].message) == (status == "info")


@each_case("imported, status", [(True, "warning"), (False, "info"), (None, "warning")])
def test_a_dependency_that_its_requirer_does_not_import_is_a_note(imported: bool | None, status: str) -> None:
    solver = FixedSolver(FixedIndex(), {"attrs-of": "2.0.1", "webui": "1.0"})
    solver.required = ["attrs-of"]
    solver.index.removed = [RemovedImport(OLD, "collections.Mapping", "Python 3.10", "a/b.py:4", "attrs_of.whl")]
    solver.index.imported = {} if imported is None else {("webui", "attrs-of"): imported}
    found = findings(sh("uv venv --python 3.12", "pip install webui"), solver, "RUN134")
    assert [each.status for each in found] == [status]


CODE: dict[str, tuple[str, str, bool]] = {
    "tomllib on 3.10": ("3.10", "import tomllib", True),
    "tomllib on 3.11": ("3.11", "import tomllib", False),
    "a name on 3.10": ("3.10", "from enum import Enum, StrEnum", True),
    "imp on 3.12": ("3.12", "import imp", True),
    "imp on 3.11": ("3.11", "import imp", False),
    "in a try": ("3.10", "try:\n    import tomllib\nexcept ImportError:\n    import tomli", False),
    "a class of collections": ("3.12", "from collections import OrderedDict", False),
}


@each_case("name", [*CODE])
def test_code_needs_another_python(name: str) -> None:
    python, code, is_reported = CODE[name]
    text = sh(f"uv venv --python {python}", "uv pip install peft") + py(code)
    assert bool(findings(text, FixedSolver(FixedIndex(), {"peft": "0.19.0"}), "RUN135")) == is_reported


TENSOR = "torchvision.transforms.functional_tensor"


@each_case(
    "version, is_loaded, status", [("0.24.0", True, "error"), ("0.24.0", False, "warning"), ("0.16.2", True, "")]
)
def test_a_package_imports_what_torchvision_removed(version: str, is_loaded: bool, status: str) -> None:
    solver = FixedSolver(FixedIndex(), {"attrs-of": "2.0.1", "torchvision": version})
    removed = RemovedImport(OLD, TENSOR, "torchvision 0.17", "attrs_of/a.py:4", "attrs_of.whl", is_loaded)
    solver.index.removed = [removed] if version != "0.16.2" else []
    text = sh("uv venv --python 3.10", "pip install torchvision attrs-of")
    found = findings(text, solver, "RUN136")
    assert [each.status for each in found] == ([status] if status else [])
    code = findings(text + py(f"from {TENSOR} import rgb_to_grayscale"), solver, "RUN136")
    assert len(code) == (2 if status else 0)


def test_the_table_agrees_with_this_interpreter() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    tops = {name for name in removed_names(python) if "." not in name}
    assert tops.isdisjoint(sys.stdlib_module_names)
    assert not {name for name in later_names(python) if "." not in name} & set(sys.stdlib_module_names)
    assert find_name(removed_names("3.13"), "typing.io", "TextIO")
    assert find_name(removed_names("3.9"), "collections", "Mapping") is None
