"""Contents of wheels that are read from an index on loopback."""

from __future__ import annotations

import pytest
from support.cases import each_case
from support.dated_index import serve
from support.release_index import Release

from envdoctor.download.sources import Sources
from envdoctor.forecast.index_facts import IndexReader
from envdoctor.resolution.index_facts import InstalledSet

pytestmark = pytest.mark.usefixtures("isolated_cache")

OLD = "2023-10-01"
NUMPY_1 = b"\x7fELF numpy.core._multiarray_umath\0_ARRAY_API"
NUMPY_2 = b"\x7fELF numpy._core._multiarray_umath\0numpy.core._multiarray_umath\0_ARRAY_API"
TAG = "cp312-cp312-manylinux_2_17_x86_64"
SO = "cpython-312-x86_64-linux-gnu.so"


def package(
    name: str,
    *files: tuple[str, str | bytes],
    day: str = OLD,
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
) -> Release:
    return Release(name, "1.0", day, requires=requires, files=files, tag=tag)


def installed(*names: str) -> InstalledSet:
    return InstalledSet(dict.fromkeys(names, "1.0"), names, "3.12", "x86_64", named=frozenset(names))


def reader(index: object) -> IndexReader:
    return IndexReader(Sources(index=index.settings()["UV_DEFAULT_INDEX"]))  # type: ignore[attr-defined]


BUILDS = {
    "built for NumPy 1": ("from ._core import x", NUMPY_1, OLD, ("numpy>=1.20",), [True]),
    "not loaded by the import": ("", NUMPY_1, OLD, ("numpy",), [False]),
    "built for NumPy 2": ("from ._core import x", NUMPY_2, OLD, ("numpy",), []),
    "without the C interface": ("from ._core import x", b"\x7fELF", OLD, ("numpy",), []),
    "numpy is not required": ("from ._core import x", NUMPY_1, OLD, (), []),
    "built long after NumPy 2.0": ("from ._core import x", NUMPY_1, "2026-01-01", ("numpy",), []),
}


@each_case("name", [*BUILDS])
def test_a_module_that_is_built_for_numpy_1(name: str) -> None:
    code, module, day, requires, loaded = BUILDS[name]
    files = ((f"built/_core.{SO}", module), ("built/__init__.py", code))
    with serve(package("built", *files, day=day, requires=requires, tag=TAG)) as index:
        found = reader(index).numpy_1_builds(installed("built"))
        assert [each.is_loaded for each in found] == loaded
        requests = len(index.requests)
        assert reader(index).numpy_1_builds(installed("built")) == found
        assert [each for each in index.requests[requests:] if each.endswith(".whl")] == []  # from the cache


@each_case("requirement, refused", [("torch (>=1.9.*)", True), ("torch (>=1.9)", False), ("torch==1.9.*", False)])
def test_metadata_that_pip_refuses(requirement: str, refused: bool) -> None:
    with serve(package("lightning", ("lightning/__init__.py", ""), requires=(requirement,))) as index:
        found = reader(index).refused_releases(installed("lightning"))
    assert [each.requirement for each in found] == ([requirement] if refused else [])


def test_files_that_two_packages_install() -> None:
    one = package("vision-python", ("cv/__init__.py", ""), ("tests/test_a.py", ""))
    other = package("vision-python-headless", ("cv/__init__.py", ""), ("tests/test_a.py", ""))
    apart = package("vision-gpu", ("cv_gpu/__init__.py", ""), ("tests/test_a.py", ""))
    with serve(one, other, apart) as index:
        found = reader(index).shared_files(installed("vision-python", "vision-python-headless", "vision-gpu"))
    assert [(each.first.name, each.second.name, each.path) for each in found] == [
        ("vision-python", "vision-python-headless", "cv/__init__.py")
    ]


@each_case(
    "module, named, is_found",
    [
        ("fold/__init__.py", ("fold", "fair-fold"), True),
        ("fold/__init__.py", ("fold",), False),  # of packages that others require, not all are read
        ("fair_fold/__init__.py", ("fold", "fair-fold"), False),
    ],
)
def test_a_module_of_two_packages_that_steps_name(module: str, named: tuple[str, ...], is_found: bool) -> None:
    with serve(package("fold", ("fold/__init__.py", "")), package("fair-fold", (module, ""))) as index:
        both = installed("fold", "fair-fold")._replace(named=frozenset(named))
        assert bool(reader(index).shared_files(both)) == is_found


LOADS = ("old/__init__.py", "from . import mapping")
REMOVED = {
    "at its import": (LOADS, "from collections import (\n    Mapping,\n)", True),
    "a module": (LOADS, "import telnetlib", True),
    "guarded": (LOADS, "try:\n    import imp\nexcept ImportError:\n    pass", False),
    "in another module": (("old/__init__.py", ""), "import imp", False),
    "in a function": (LOADS, "def f():\n    import imp", False),
    "after a check of a package": (
        LOADS, "try:\n    if not f():\n        raise Absent\nexcept Absent:\n    pass\nelse:\n    import imp", True,
    ),
    "another name": (LOADS, "from collections import OrderedDict", False),
}  # fmt: skip


@each_case("name", [*REMOVED])
def test_imports_of_what_python_removed(name: str) -> None:
    start, code, is_removed = REMOVED[name]
    with serve(package("old", start, ("old/mapping.py", code), day="2019-02-01")) as index:
        found = reader(index).removed_imports(installed("old")._replace(python="3.13"))
        assert bool(found) == is_removed
        assert all(each.place.startswith("old/mapping.py:") for each in found)


@each_case("module, is_removed", [("pathlib", False), ("paths", True)])
def test_python_finds_its_own_module_first(module: str, is_removed: bool) -> None:
    with serve(package(module, (f"{module}.py", "from collections import Sequence"), day="2019-02-01")) as index:
        found = reader(index).removed_imports(installed(module)._replace(python="3.13"))
    assert bool(found) == is_removed


@each_case(
    "name, code, expected",
    [
        ("loaded", "from torchvision.transforms.functional_tensor import f", [True]),
        ("a name", "from torchvision.transforms import functional_tensor", [True]),
        ("guarded", "try:\n    import torchvision.transforms.functional_tensor\nexcept ImportError:\n    pass", []),
        ("another module", "import torchvision.transforms.functional", []),
    ],
)
def test_imports_of_what_torchvision_removed(name: str, code: str, expected: list[bool]) -> None:
    del name
    with serve(package("old", LOADS, ("old/mapping.py", code), day="2022-02-01")) as index:
        found = reader(index).removed_torch_imports(installed("old")._replace(torch_family={"torchvision": "0.24.0"}))
        assert [each.is_loaded for each in found] == expected
        assert not reader(index).removed_torch_imports(
            installed("old")._replace(torch_family={"torchvision": "0.16"})
        )


def test_an_optional_module_is_not_compared_with_torchvision() -> None:
    code = ("old/mapping.py", "import torchvision.transforms.functional_tensor")
    family = installed("old")._replace(torch_family={"torchvision": "0.24.0"})
    for start, expected in (("", [False]), ("from . import a, b", [])):
        files = (("old/__init__.py", start), ("old/a.py", ""), ("old/b.py", ""), code)
        with serve(package("old", *files, day="2022-02-01")) as index:
            assert [each.is_loaded for each in reader(index).removed_torch_imports(family)] == expected
