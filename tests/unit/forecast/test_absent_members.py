"""What classes of code expect of the classes of releases that are read from an index on loopback."""

from __future__ import annotations

import pytest
from support.cases import each_case
from support.dated_index import serve
from support.release_index import Release

from envdoctor.download.sources import Sources
from envdoctor.forecast.index_facts import IndexReader
from envdoctor.resolution.index_facts import InheritedMember, InstalledSet

pytestmark = pytest.mark.usefixtures("isolated_cache")

BASE = """
class Base:
    def load(self, **kw):
        return self._load(name=1{passed}, **kw)

class Mixin(Base):
    def _load(self, *, name{named}):
        self.close()
    def close(self): pass
"""
OLD = BASE.format(passed=", proxies=2", named=", proxies")
CALL = InheritedMember(1, "hub", "Mixin", "open_all", "a.py:1", "Model")
OVERRIDE = InheritedMember(1, "hub", "Mixin", "_load", "a.py:1", "Model", ("name", "proxies"))
CASES = {
    "no such method": (BASE.format(passed="", named=""), CALL, "", ("open_all", "")),
    "a method of the base class": (BASE.format(passed="", named=""), CALL._replace(member="load"), "", None),
    "a method": (BASE.format(passed="", named=""), CALL._replace(member="close"), "", None),
    "an argument is no longer passed": (BASE.format(passed="", named=""), OVERRIDE, "", ("proxies", "0.9")),
    "compared with the lower bound": (BASE.format(passed="", named=""), OVERRIDE, "0.9", ("proxies", "0.9")),
    "still passed": (OLD, OVERRIDE, "", None),
    "never passed": (BASE.format(passed="", named=""), OVERRIDE._replace(required=("name", "own")), "", None),
    "still accepted": (BASE.format(passed="", named=", proxies=None"), OVERRIDE, "", None),
    "a class of dynamic members": ("from other import Mixin", CALL, "", None),
}


@each_case("name", [*CASES])
def test_members_that_a_release_lacks(name: str) -> None:
    code, member, lowest, expected = CASES[name]
    files = (("hub/__init__.py", "from .mixin import Mixin"),)
    old = Release("hub", "0.9", "2024-01-01", files=(*files, ("hub/mixin.py", OLD)))
    new = Release("hub", "1.0", "2026-10-01", files=(*files, ("hub/mixin.py", code)))
    installed = InstalledSet({"hub": "1.0"}, (), "3.12", "x86_64", lowest={"hub": lowest} if lowest else {})
    with serve(old, new) as index:
        reader = IndexReader(Sources(index=index.settings()["UV_DEFAULT_INDEX"]))
        found = reader.absent_members(installed, [member])
    assert [(each.missing, each.last) for each in found] == ([expected] if expected else [])
