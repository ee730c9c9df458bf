"""The findings whose remedies change packages. Only for these, the release tables are searched."""

from __future__ import annotations

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, Uninstall
from envdoctor.rules import RULES

# Rules on versions only: without a cure among their own remedies, each package of their evidence is tried.
VERSION_RULES = ("PKG", "HF", "TRL", "VLLM", "VERL", "DS", "RAY", "BNB003")


def changes_packages(finding: Finding) -> bool:
    """Whether a remedy of a finding on an environment changes packages, or a search may find one that does."""
    if not RULES[finding.id].needs_environment:
        return False
    if finding.status in ("error", "warning") and finding.id.startswith(VERSION_RULES):
        return True
    return any(isinstance(step, Install | Uninstall) for remedy in finding.remedies for step in remedy.steps)
