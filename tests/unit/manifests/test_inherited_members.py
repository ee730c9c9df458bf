"""Classes of a checkout that derive from classes of an installed release."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

GUARDED = "class A(Base):\n    def f(self):\n        try: super().old()\n        except E: pass"
CASES = {
    "a call of super": ("class A(Base):\n    def old(self):\n        super().old()", "super().old"),
    "another name": ("class A(Base):\n    def new(self):\n        super().new()", ""),
    "guarded": (GUARDED, ""),
    "a second base": ("class A(Own, Base):\n    def f(self):\n        super().old()", ""),
    "an override": ("class A(Own, Base):\n    def old(self, *, proxies):\n        pass", "requires old in old"),
    "with a default": ("class A(Base):\n    def old(self, *, proxies=None):\n        pass", ""),
    "another class": ("class A(Own):\n    def old(self, *, proxies):\n        super().old()", ""),
}  # fmt: skip


def audit(folder: Path, code: str, step: str) -> list[Finding]:
    (folder / "train.py").write_text(f"from hub import Base\n{code}\n")
    text = sh(step, "python train.py")
    solver = FixedSolver(FixedIndex(IndexedRelease("hub", "1.0", "2026-10-01")), {"hub": "1.0", "torch": "2.8.0"})
    result = audit_text(text, str(folder / "README.md"), None, solver).result
    return [each for each in result.findings if each.id == "RUN221"]


@each_case("name", [*CASES])
def test_a_class_expects_what_its_base_lacks(name: str, tmp_path: Path) -> None:
    code, message = CASES[name]
    found = audit(tmp_path, code, "pip install torch==2.8.0 hub")
    assert [message in each.message for each in found] == ([True] if message else [])
    assert not audit(tmp_path, code, "pip install torch==2.8.0 hub==1.0")
