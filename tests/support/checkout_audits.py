"""Audits of a guide in a checkout of git, with the files that a test names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding


def findings_in_checkout(folder: Path, rule: str, files: Mapping[str, str], *commands: str) -> list[Finding]:
    """The findings of a rule on a README with these commands. The files are removed afterwards."""
    (folder / ".git").mkdir(exist_ok=True)
    write_files(folder, files)
    guide = sh("pip install torch==2.8.0", *commands)
    (folder / "README.md").write_text(guide)
    found = audit_text(guide, str(folder / "README.md"), None, FixedSolver(FixedIndex(), {}), python="3.12")
    for name in files:
        (folder / name).unlink()
    return [each for each in found.result.findings if each.id == rule]
