"""Modules and names that some releases of a library lack: how releases are compared, and what the tables contain."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.knowledge.fast_names import name_without_fast
from envdoctor.knowledge.modules import spans_of_module, spans_of_module_name, tables
from envdoctor.knowledge.names import Span
from envdoctor.knowledge.tables import read_table

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.module_tables import derive
from campaigns.release_store import Store

RELEASES = {
    "1.0": {
        "lib/__init__.py": "from .parts import *\nfrom .core import run\ndef old(): ...\n"
        "if TYPE_CHECKING:\n    from .core import hint\n",
        "lib/parts.py": "__all__ = ['shown']\ndef shown(): ...\ndef internal(): ...\n",
        "lib/core.py": "from os import path\ndef run(): ...\ndef hint(): ...\nSIZE = 1\n_private = 2\n"
        "for item in (): ...\n",
        "lib/gone/__init__.py": "",
        "lib/gone/part.py": "",
        "lib/lazy.py": "_import_structure = {'a': ['run']}\n",
        "lib/wrapper.py": "class Wrapper:\n    def __getattr__(self, key):\n        return getattr('wrapped', key)\n",
        "lib/patch.py": "def patch(other):\n    def __getattr__(name):\n        return 'patched'\n",
    },
    "1.1": {
        "lib/__init__.py": "from .core import run\nfrom ._native import *\n",
        "lib/parts.py": "def shown(): ...\n",
        "lib/core.py": "def run(): ...\n",
        "lib/lazy.py": "_import_structure = {}\n",
    },
    "2.0": {
        "lib/__init__.py": "def __getattr__(name):\n    if name == 'old':\n        return 1\n"
        "    raise AttributeError\n",
        "lib/parts.py": "def shown(): ...\ndef new(): ...\n",
        "lib/core.py": "import sys\nsys.modules[__name__] = object()\n",
        "lib/added.py": "",
        "lib/wrapper.py": "class Wrapper: ...\n",
        "lib/patch.py": "def patch(other): ...\n",
        "lib/lazy.py": "_import_structure = {}\n",
    },
}  # fmt: skip


@pytest.fixture(name="rows")
def derived_rows(tmp_path: Path) -> tuple[list[str], list[str]]:
    """The rows of modules and of names."""
    store = Store(tmp_path, "lib")
    for version, files in RELEASES.items():
        keys = {path: f"{version}-{path}" for path in files}
        compiled = ["lib/_native.cpython-313-x86_64-linux-gnu.so"] if version == "1.1" else []
        content = {"paths": keys, "compiled": compiled}
        store.add(version, content, ((keys[path], text.encode()) for path, text in files.items()))
    versions, modules, names = derive(store, "lib")
    assert versions == list(RELEASES)
    return modules, names


def test_modules_that_went_and_came(rows: tuple[list[str], list[str]]) -> None:
    """A compiled module, `_native`, has no row: a build that failed lacks it in every release."""
    assert rows[0] == ["..1.0>1.1 | gone", "..1.0>1.1 1.1<2.0.. | patch wrapper", "1.1<2.0.. | added"]


def test_names_that_went_and_came(rows: tuple[list[str], list[str]]) -> None:
    """The names of the tables are certain: not those of a compiled module, nor what a module makes when it is loaded.

    `hint` does not exist while the program runs, and lib 2.0 can provide `shown` by its `__getattr__`. Those
    in the class of lib.wrapper and in the function of lib.patch provide no names of the module.
    """
    assert rows[1] == [
        "..1.0>1.1 | core:SIZE,hint parts:internal",
        "..1.0>2.0 | lazy:run",
        "..1.1>2.0 | :run",
        "1.1<2.0.. | parts:new",
    ]


@each_case("top", sorted(tables()))
def test_every_row_has_members_and_periods_in_order(top: str) -> None:
    table = read_table(f"modules/{top}.toml")
    order = {release: number for number, release in enumerate(table["releases"].split())}
    for row in (*table["modules"].splitlines(), *table["names"].splitlines()):
        assert all(part.isidentifier() for part in re.split(r"[ .:,]", row.partition(" | ")[2]) if part), row
        member = row.partition(" | ")[2].split()[0].split(",")[0]
        module, has_name, name = member.partition(":")
        path = f"{top}.{module}".rstrip(".")
        spans = spans_of_module_name(path, name) if has_name else spans_of_module(path)
        bounds = [bound for span in spans for bound in (span.before, span.first, span.last, span.next) if bound]
        assert bounds or name_without_fast(path, name)
        assert [order[bound] for bound in bounds] == sorted(order[bound] for bound in bounds), row


def test_known_changes() -> None:
    assert spans_of_module("pandas.core.indexes.numeric") == (Span("pandas", "", "", "1.5.3", "2.0.0"),)
    assert spans_of_module_name("scipy.integrate", "trapz") == (Span("scipy", "", "", "1.13.1", "1.14.0"),)
    assert spans_of_module_name("huggingface_hub", "DatasetFilter")[0].next == "0.24.7"
    assert not spans_of_module("scipy.stats")  # each release has it
    assert not spans_of_module_name("scipy.stats", "norm")
    assert not spans_of_module_name("scipy.stats", "a_typo")
    assert not spans_of_module("no_such_library.part")
