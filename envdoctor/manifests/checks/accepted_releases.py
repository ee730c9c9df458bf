"""The release of a dependency that all installed packages accept."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.python_limits import supports_python
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, evaluate_version_rules, version_rules
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Rule

_MAX_CANDIDATES = 60  # releases that are judged


def accepted_release(
    context: GuideContext, environment: CorrectedEnvironment, package: ResolvedPackage, version: str,
    rules: Sequence[Rule],
) -> tuple[str, str]:  # fmt: skip
    """The release, or the newest one that all installed packages accept and of which these rules report nothing.

    Without such a release, the package that excludes it as well: an installer does not compare a command with what is
    installed. Packages that the correction replaces are left out.
    """
    index, state = context.index_facts, environment.state
    if not (version and index and package.is_dependency) or state.resolution not in ("solved", "partial"):
        return version, ""
    replaced = {each.package.name for each in environment.substitutions if each.version}
    current = public_part(package.version)
    bounds = {
        requirer: specifier
        for requirer, specifier in index.specifiers_of(installed_set(context, state, ()), package.name).items()
        if requirer.partition(" ")[0] not in replaced and satisfies(current, specifier)
    }
    excluding = next((each for each, specifier in bounds.items() if satisfies(version, specifier) is False), "")
    if not excluding:
        return version, ""
    machine = context.machine or build_machine(context.trace)
    python = state.python or context.trace.python
    direction = f"{'<' if satisfies(version, f'<{current}') else '>'}{current}"
    specifier = ",".join(filter(None, (*bounds.values(), direction)))
    for row in releases_in_range(package.name, specifier)[:_MAX_CANDIDATES]:
        stack = build_stack(state, state.packages | {package.name: package._replace(version=row.version)})
        if supports_python(package.name, row, python) and not evaluate_version_rules(machine, stack, rules):
            return row.version, ""
    return version, excluding


def rejecting_package(context: GuideContext, state: EnvironmentState, name: str, version: str) -> str:
    """A pinned package that does not work with a release, `torch 1.10.1`, by the version rules; empty without one."""
    machine = context.machine or build_machine(context.trace)
    stack = build_stack(state, state.packages | {name: ResolvedPackage(name, version, 0, name)})
    for violation in evaluate_version_rules(machine, stack, version_rules()):
        facts = [item.fact for item in violation.problem.evidence]
        others = [state.packages[fact] for fact in facts if fact in state.packages and fact != name]
        if name in facts and violation.problem.status == "error":
            return next((f"{each.name} {public_part(each.version)}" for each in others if each.pinned), "")
    return ""
