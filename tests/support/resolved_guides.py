"""Audits of guides whose steps a solver of the test index solves."""

from __future__ import annotations

from pathlib import Path

from envdoctor.commands.audit_file import AuditResult, audit_file
from envdoctor.core.records import Finding
from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.resolution.step import NoSolver


def audit(folder: Path, text: str, solver: UvStepSolver | NoSolver) -> AuditResult:
    """The audit of a guide."""
    path = folder / "SETUP.md"
    path.write_text(text)
    return audit_file(str(path), None, solver).result


def found(result: AuditResult, *identifiers: str) -> list[Finding]:
    """The findings of some rules."""
    return [each for each in result.findings if each.id in identifiers]
