"""Joins the findings on the paths through a guide, and names the alternative of each finding."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.manifests.alternatives import Branch
from envdoctor.manifests.guide import Guide

_ON_PACKAGES = frozenset({"RUN003", "RUN004", "RUN005", "RUN010", "RUN017", "RUN040", "RUN109", "RUN122"})
_QUOTED = lazy_pattern(r"`([^`]+)`")
_LINE = lazy_pattern(r"\bline \d+")  # of an earlier step: each environment has its own
_COUNTED = lazy_pattern(r"\b\d+ packages that were read|; not read: .*")
_MAX_NAMES = 3
_Key = tuple[int, str, str, str]


def join_findings(audited: Sequence[tuple[Guide, Sequence[Finding]]]) -> list[Finding]:
    """The findings of all paths in the order of the lines, each once. One of some paths names its alternative.

    One on the packages of a file is the same for each command that installs this file, and one on a missing package
    is the same after each of the paths, which differ in the packages that were read.
    """
    found: dict[_Key, tuple[Finding, list[Guide]]] = {}
    for guide, findings in audited:
        for finding in findings:
            line = 0 if _is_of_file(guide, finding) else finding.line
            message = _COUNTED.sub("", finding.message if line else _LINE.sub("", finding.message))
            fix = finding.fix if line else _LINE.sub("", finding.fix)
            _, having = found.setdefault((line, finding.id, message, fix), (finding, []))
            having += [] if any(each is guide for each in having) else [guide]
    paths = [guide for guide, _ in audited]
    named = [_name_branch(finding, having, paths) for finding, having in found.values()]
    return sorted(named, key=lambda finding: (finding.line, finding.id))


def _is_of_file(guide: Guide, finding: Finding) -> bool:
    """Whether a finding on packages is about a file: its line, a command, names none of them."""
    line = guide.lines[finding.line - 1].lower() if 0 < finding.line <= len(guide.lines) else ""
    names = _QUOTED.findall(finding.message)[:1] or [each.fact for each in finding.evidence]
    return finding.id in _ON_PACKAGES and bool(line) and not any(each.lower() in line for each in names)


def _name_branch(finding: Finding, having: list[Guide], paths: list[Guide]) -> Finding:
    if len(paths) < 2 or len(having) == len(paths):
        return finding
    around = [b for guide in having for b in guide.branches if b.first <= finding.line <= b.last]
    if around:
        name = max(around, key=lambda branch: branch.first).name
    else:
        name = " or ".join(distinguishing_names(having, paths))
    return replace(finding, message=f"{name}: {finding.message}") if name else finding


def distinguishing_names(having: Sequence[Guide], paths: Sequence[Guide]) -> list[str]:
    """The names of up to three branches that some paths follow, and not all others do."""
    everywhere = set.intersection(*(set(guide.branches) for guide in paths))
    shared: set[Branch] = set.intersection(*(set(guide.branches) for guide in having)) - everywhere
    chosen = shared or {branch for guide in having for branch in guide.branches} - everywhere
    return list(dict.fromkeys(branch.name for branch in sorted(chosen, key=lambda branch: branch.first)))[:_MAX_NAMES]
