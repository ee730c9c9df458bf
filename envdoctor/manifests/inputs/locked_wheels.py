"""Audits the wheels of the sets that a lock installs: what they use of one another, and what they contain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding, Machine
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.manifests.checks import evaluate_guide
from envdoctor.manifests.context import build_context
from envdoctor.manifests.inputs.locked_sets import guide_of_set
from envdoctor.manifests.inputs.project_commands import project_remedies
from envdoctor.manifests.inputs.records import PackageSet
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.step import PinnedSolver

_RULES = frozenset({"RUN017", "RUN120", "RUN122"})
_COMPATIBLE_WHEELS = "RUN005"
_PACKAGE = lazy_pattern(r"^\[\[packages?\]\]$", re.MULTILINE)
_NAME = lazy_pattern(r'^name = "([^"]+)"', re.MULTILINE)
_ARCHIVE = lazy_pattern(r"^sdist = |\.(?:tar\.gz|zip)\"", re.MULTILINE)
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


def audit_python(
    sets: Sequence[PackageSet], kind: str, path: str, machine: Machine | None, *, text: str, python: str
) -> list[Finding]:
    """The packages of a lock without a wheel for a Python that the user states, and without a source archive.

    Requires-Python of the project can permit it: a range without an upper limit does not depend on the wheels.
    """
    name = path.rpartition("/")[2]
    older = [each for each in sets if each.python and dotted_numbers(each.python) <= dotted_numbers(python)]
    chosen = max(older, key=lambda each: dotted_numbers(each.python), default=None)
    if chosen is None or not text.lstrip().startswith(("version", "lock", "[", "#")):
        return []
    archives = _with_archive(text)
    kept = (each for each in chosen.packages if each.name not in archives)
    packages = tuple(sorted(kept, key=lambda each: each.name != "torch"))  # the first one is named
    guide = guide_of_set(chosen._replace(python=python, packages=packages), name, {each.name for each in packages})
    context = build_context(guide, machine, date.today().isoformat())
    lines = {each.name: each.line for each in packages}
    return [
        replace(
            project_remedies(finding, kind, name=path),
            line=next((lines[item.fact] for item in finding.evidence if item.fact in lines), finding.line),
        )
        for finding in evaluate_guide(context, {_COMPATIBLE_WHEELS})
    ]


def _with_archive(text: str) -> set[str]:
    """The packages of a TOML lock for which it lists a source archive."""
    blocks = _PACKAGE.split(text)[1:]
    return {normalize_name(found[1]) for each in blocks if (found := _NAME.search(each)) and _ARCHIVE.search(each)}
