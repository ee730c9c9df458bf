"""Several entries of one package all count."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import IndexedRelease

VERSIONS = {"torch": "2.8.0", "sentencepiece": "0.1.99", "einops": "0.6.1", "scipy": "1.15.0"}


@each_case(
    ("entries", "name", "wanted"),
    [
        (["sentencepiece", "sentencepiece~=0.1.99"], "sentencepiece", "sentencepiece~=0.1.99"),
        (["sentencepiece~=0.1.99", "sentencepiece"], "sentencepiece", "sentencepiece~=0.1.99"),
        (["einops", "einops==0.6.1"], "einops", "einops==0.6.1"),
        (["einops>=0.6", "einops==0.6.1"], "einops", "einops==0.6.1"),
        (["scipy>=1.10", "scipy<1.16"], "scipy", "scipy<1.16,>=1.10"),
        (["scipy"], "scipy", "scipy"),
    ],
)
def test_each_entry_of_a_package_counts(entries: list[str], name: str, wanted: str, tmp_path: Path) -> None:
    solver = FixedSolver(FixedIndex(IndexedRelease("chain", "1.0", "2026-10-01")), VERSIONS)
    text = "\n".join(["torch==2.8.0", *entries])
    audit = audit_text(text, str(tmp_path / "requirements.txt"), None, solver, python="3.12").audit
    assert audit
    assert [each for each in audit.main.own if each.startswith(name)] == [wanted]
