"""Audits the wheels of the sets that a lock installs: what they use of one another, and what they contain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from msgspec.structs import replace

from envdoctor.core.records import Finding, Machine
from envdoctor.manifests.checks import evaluate_guide
from envdoctor.manifests.context import build_context
from envdoctor.manifests.inputs.locked_sets import guide_of_set
from envdoctor.manifests.inputs.project_commands import project_remedies
from envdoctor.manifests.inputs.records import PackageSet
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.step import PinnedSolver

_RULES = frozenset({"RUN017", "RUN120", "RUN122"})
_MAX_SETS = 2  # targets of a lock, whose packages are mostly the same


def audit_wheels(
    sets: Sequence[PackageSet], kind: str, path: str, machine: Machine | None, index: IndexFacts
) -> list[Finding]:
    """The findings on the wheels of the first sets, each once.

    At most warnings: a lock does not state which of its packages the project imports.
    """
    name = path.rpartition("/")[2]
    found: dict[tuple[str, str], Finding] = {}
    for each in sets[:_MAX_SETS]:
        guide = guide_of_set(each, name, {package.name for package in each.packages})
        context = build_context(guide, machine, date.today().isoformat(), PinnedSolver(index))
        for finding in evaluate_guide(context, _RULES):
            lowered = replace(finding, status="warning") if finding.status == "error" else finding
            found.setdefault((finding.id, finding.message), project_remedies(lowered, kind, name=path))
    return list(found.values())
