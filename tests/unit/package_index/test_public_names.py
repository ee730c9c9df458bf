"""Public names and arguments of source files, and what a newer release of them removes."""

from __future__ import annotations

from envdoctor.package_index.public_names import read_names, removed_names

OLD = """
from pkg.core import moved
LIMIT: int = 3
def load(path, encoding, mode="r"): ...
def save(path, mode): ...
def gone(): ...
def _private(): ...
class Model:
    def __init__(self, size, seed): ...
    def fit(self, data, epochs): ...
    def reset(self): ...
class Child(Model):
    def predict(self): ...
try:
    from pkg.fast import quick
except ImportError:
    quick = None
"""
NEW = """
def load(path, *, mode="r"): ...
def save(path, **options): ...
class Model:
    def __init__(self, size): ...
    def fit(self, data): ...
class Child(Model): ...
def __getattr__(name):
    if name == "LIMIT":
        return 3
    raise AttributeError(name)
"""


def removed(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [str(each) for each in removed_names(read_names(old), read_names(new))]


def test_removed_names_arguments_and_methods() -> None:
    found = removed({"pkg/__init__.py": OLD}, {"pkg/__init__.py": NEW})
    assert found == [
        "pkg.Model(seed)", "pkg.Model.fit(epochs)", "pkg.Model.reset", "pkg.gone", "pkg.load(encoding)", "pkg.moved",
        "pkg.quick",
    ]  # fmt: skip


def test_a_removed_module_is_one_change_and_private_ones_are_none() -> None:
    old = {"pkg/__init__.py": "", "pkg/old/__init__.py": "A = 1", "pkg/old/more.py": "B = 2", "pkg/_c.py": "D = 1"}
    assert removed(old, {"pkg/__init__.py": ""}) == ["pkg.old"]


def test_stubs_complete_the_names_of_a_module() -> None:
    assert removed({"pkg/__init__.pyi": "float_: type", "pkg/__init__.py": ""}, {"pkg/__init__.py": ""}) == [
        "pkg.float_"
    ]


def test_a_file_that_cannot_be_parsed_removes_nothing() -> None:
    new = read_names({"pkg/__init__.py": "def load(:"})
    assert new.unread == ["pkg/__init__.py"]
    assert list(removed_names(read_names({"pkg/__init__.py": OLD}), new)) == []
