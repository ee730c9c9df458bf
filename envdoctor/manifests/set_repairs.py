"""What the rules report about a solved set, and limits of its open packages that prevent it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.corrected_pins import CorrectedSet
from envdoctor.manifests.corrections import Violation, evaluate_version_rules, version_rules
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.known_breaks import known_breaks
from envdoctor.rules.registry import Rule

_MAX_CANDIDATES = 60


def broken_rules(versions: Mapping[str, str], corrected: CorrectedSet) -> list[Violation]:
    """The errors of the version rules on solved packages."""
    violations = _violations(versions, corrected)
    return [violation for violation in violations if violation.problem.status == "error"]


def _violations(
    versions: Mapping[str, str], corrected: CorrectedSet, rules: Collection[Rule] = ()
) -> list[Violation]:
    packages = {name: ResolvedPackage(name, version, 0, "solved") for name, version in versions.items()}
    if torch := packages.get("torch"):
        packages["torch"] = torch._replace(cuda=corrected.cuda or cuda_on_pypi(torch.version, corrected.architecture))
    stack = build_stack(EnvironmentState(python=corrected.python), packages)
    machine = build_machine(GuideTrace(corrected.architecture, "", "", (), ()))
    return evaluate_version_rules(machine, stack, tuple(rules) or version_rules())


def limits_without(
    violations: Collection[Violation], versions: Mapping[str, str], corrected: CorrectedSet, fixed: Collection[str]
) -> list[str]:
    """An upper bound for an open package of each violation, with which its rule reports nothing: `numpy<=1.26.4`.

    `fixed` are the packages whose version the guide states.
    """
    limits: dict[str, str] = {}
    for violation in violations:
        names = [item.fact for item in violation.problem.evidence if item.fact in versions and item.fact not in fixed]
        for name in names:
            limit = _limit_of_break(violation.rule.id, name)
            if not limit and (version := _older_version(name, violation.rule, versions, corrected)):
                limit = f"{name}<={version}"
            if limit:
                limits.setdefault(name, limit)
                break
    return list(limits.values())


def _limit_of_break(rule: str, name: str) -> str:
    """The releases of a package before those that a known break is about; empty for other rules."""
    conditions = (condition.partition(" ") for row in known_breaks() if row.id == rule for condition in row.when)
    found = (re.search(r">=\s*([\w.]+)", bounds) for package, _, bounds in conditions if package == name)
    return next((f"{name}<{match[1]}" for match in found if match), "")


def _older_version(name: str, rule: Rule, versions: Mapping[str, str], corrected: CorrectedSet) -> str:
    """The newest release before the solved one with which the rule reports less; empty if there is none."""
    count = len(_violations(versions, corrected, [rule]))
    older = releases_in_range(name, f"<{public_part(versions[name])}")[:_MAX_CANDIDATES]
    for row in older:
        if len(_violations({**versions, name: row.version}, corrected, [rule])) < count:
            return row.version
    return ""
