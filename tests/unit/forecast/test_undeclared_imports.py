"""Modules that old releases import and that no package of the set has, read from an index on loopback."""

from __future__ import annotations

import io
import zipfile

import pytest
from support.cases import each_case
from support.dated_index import serve
from support.release_index import Release

from envdoctor.download.sources import Sources
from envdoctor.forecast.index_facts import IndexReader
from envdoctor.forecast.module_imports import ModuleImports
from envdoctor.package_index.wheel_sources import COMPILED_LIST, WheelSources
from envdoctor.resolution.index_facts import CodeImport, InstalledSet

pytestmark = pytest.mark.usefixtures("isolated_cache")

OLD, NEW = "2024-10-15", "2026-10-01"


def package(name: str, *files: tuple[str, str], day: str = OLD, requires: tuple[str, ...] = ()) -> Release:
    return Release(name, "1.0", day, requires=requires, files=files)


START = ("old/__init__.py", "from . import utils")
LAZY = ("old/__init__.py", "def __getattr__(name):\n    import importlib")
OF_TRAINER = ("old/trainer.py", "from .utils import f\nclass Trainer:\n    pass")
CHECKED = "try:\n    if not has_rich():\n        raise Absent\nexcept Absent:\n    pass\nelse:\n    import rich"
COMPILED = ("old/utils.cpython-312-x86_64-linux-gnu.so", "")
CASES = {
    "at its import": ([START, ("old/utils.py", "from rich.table import Table")], ["import"]),
    "only with the module that the code imports": (
        [LAZY, OF_TRAINER, ("old/utils.py", "import rich")],
        ["code"],
    ),
    "of a class with a substitute": (
        [LAZY, OF_TRAINER, ("old/utils.py", "import rich"), ("old/dummies.py", "class Trainer:\n    pass")],
        [],
    ),
    "in a module that the code does not import": (
        [LAZY, ("old/trainer.py", "class Trainer: pass"), ("old/cli.py", "import rich")],
        [],
    ),
    "guarded": ([START, ("old/utils.py", "try:\n    import rich\nexcept ImportError:\n    rich = None")], []),
    "after a check of an optional package": (
        [
            START,
            (
                "old/utils.py",
                CHECKED,
            ),
        ],
        [],
    ),
    "in a lazy import": ([START, ("old/utils.py", "with LazyImport('pip install rich') as r:\n    import rich")], []),
    "in another context": (
        [START, ("old/utils.py", "with warnings.catch_warnings():\n    import rich")],
        ["import"],
    ),
    "under a condition": ([START, ("old/utils.py", "if has_rich():\n    import rich")], []),
    "in a function": ([START, ("old/utils.py", "def f():\n    import rich")], []),
    "its own module": ([START, ("old/utils.py", "import rich"), ("old/_vendor/rich.py", "")], []),
    "of another package under its own name": ([START, ("old/utils.py", "import tables_of_dependency")], []),
    "of the standard library of an older Python": ([START, ("old/utils.py", "import imp")], []),
    "of Cython, which compiled the module": ([START, ("old/utils.py", "import cython"), COMPILED], []),
    "of another package by a compiled module": ([START, ("old/utils.py", "import rich"), COMPILED], ["import"]),
    "of torch": ([START, ("old/utils.py", "import torch, functorch")], []),
}


@each_case("name", [*CASES])
def test_imports_that_no_package_has(name: str) -> None:
    files, kinds = CASES[name]
    dependency = package("dependency", ("tables_of_dependency/__init__.py", ""), day=NEW)
    versions = {"old": "1.0", "dependency": "1.0"}
    code = (CodeImport(1, "old", "Trainer", "train.py:1"),)
    installed = InstalledSet(versions, ("old",), "3.12", "x86_64", named=frozenset(("old",)), imports=code)
    with serve(package("old", *files, requires=("dependency",)), dependency) as index:
        reader = IndexReader(Sources(index=index.settings()["UV_DEFAULT_INDEX"]))
        found = reader.undeclared_imports(installed)
    assert [(each.user.name, each.module, each.kind) for each in found] == [("old", "rich", kind) for kind in kinds]


@each_case(
    "name, code, count",
    [("loaded", "import old", 1), ("in a function", "def f():\n    import old", 0), ("not at all", "", 0)],
)
def test_a_dependency_that_nothing_loads_is_left_out(name: str, code: str, count: int) -> None:
    """Also where a list of all packages names it."""
    del name
    old = package("old", START, ("old/utils.py", "import rich"))
    named = package("named", ("named/__init__.py", code), requires=("old",))
    versions = dict.fromkeys(("old", "named", "dependency"), "1.0")
    with serve(old, named, package("dependency", ("dependency.py", ""), day=NEW)) as index:
        for listed in (("named",), ("named", "old")):
            reader = IndexReader(Sources(index=index.settings()["UV_DEFAULT_INDEX"]))
            installed = InstalledSet(versions, ("named",), "3.12", "x86_64", named=frozenset(listed))
            assert len(reader.undeclared_imports(installed)) == count, listed


@each_case(
    "requirement, count", [("rich", 0), ("rich; python_version < '3'", 0), ("rich; extra == 'cli'", 1), ("six", 1)]
)
def test_what_a_release_requires_is_only_missing_without_its_dependencies(requirement: str, count: int) -> None:
    old = package("old", START, ("old/utils.py", "import rich"), requires=(requirement,))
    versions = {"old": "1.0", "dependency": "1.0"}
    installed = InstalledSet(versions, ("old",), "3.12", "x86_64", named=frozenset(("old",)))
    with serve(old, package("dependency", ("dependency.py", ""), day=NEW)) as index:
        reader = IndexReader(Sources(index=index.settings()["UV_DEFAULT_INDEX"]))
        assert len(reader.undeclared_imports(installed)) == count


@each_case("python, count", [("3.12", 1), ("3.13", 1), ("3.11", 0)])
def test_new_environments_have_no_setuptools_from_python_3_12_on(python: str, count: int) -> None:
    old = package("old", ("old/__init__.py", "import pkg_resources"))
    versions = {"old": "1.0", "dependency": "1.0"}
    installed = InstalledSet(versions, ("old",), python, "x86_64", named=frozenset(("old",)))
    with serve(old, package("dependency", day=NEW)) as index:
        reader = IndexReader(Sources(index=index.settings()["UV_DEFAULT_INDEX"]))
        found = reader.undeclared_imports(installed)
        given = reader.undeclared_imports(installed._replace(versions={**versions, "setuptools": "80.0.0"}))
    assert [each.module for each in found] == ["pkg_resources"] * count
    assert list(given) == []


@each_case(
    ("archive", "starts"), [("old_lora-1.0.tar.gz", ["lycoris"]), ("old_lora-1.0.whl", ["convert", "lycoris"])]
)
def test_scripts_next_to_the_package_of_a_source_archive_are_not_imported(archive: str, starts: list[str]) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as files:
        for path, text in {"convert.py": "import library", "lycoris/__init__.py": "", COMPILED_LIST: ""}.items():
            files.writestr(path, text)
    sources = WheelSources(archive, zipfile.ZipFile(data))
    assert ModuleImports(sources, {}).starts("old-lora") == starts
