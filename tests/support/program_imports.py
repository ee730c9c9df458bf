"""A finding on the imports of a checkout's programs, with an index of four packages."""

from __future__ import annotations

from pathlib import Path

from support.fixed_index import FixedIndex, FixedSolver

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

RELEASES = tuple(IndexedRelease(name, "1.0", "2026-10-01") for name in ("chain", "plots", "tables", "torchaudio"))


def audit_imports(path: Path, text: str, **versions: str) -> list[Finding]:
    """Write a guide to a path, and return its findings on modules that no step installs or a release lacks."""
    index = FixedIndex(*RELEASES)
    index.requirements = {"chain 1.0": ("plots",)}
    solver = FixedSolver(index, {"torch": "2.8.0", **versions})
    path.write_text(text)
    found = audit_text(text, str(path), None, solver, python="3.12").result.findings
    return [each for each in found if each.id in ("RUN078", "RUN181")]
