"""What the rules report about a solved set, and limits of its open packages that prevent it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.corrected_pins import CorrectedSet
from envdoctor.manifests.corrections import Violation, evaluate_version_rules, version_rules
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.resolution.resolver import ResolvedPackage
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
        packages["torch"] = torch._replace(cuda=corrected.cuda or "cpu")
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
            if version := _older_version(name, violation.rule, versions, corrected):
                limits.setdefault(name, f"{name}<={version}")
                break
    return list(limits.values())


def _older_version(name: str, rule: Rule, versions: Mapping[str, str], corrected: CorrectedSet) -> str:
    """The newest release before the solved one with which the rule reports less; empty if there is none."""
    count = len(_violations(versions, corrected, [rule]))
    older = releases_in_range(name, f"<{public_part(versions[name])}")[:_MAX_CANDIDATES]
    for row in older:
        if len(_violations({**versions, name: row.version}, corrected, [rule])) < count:
            return row.version
    return ""
