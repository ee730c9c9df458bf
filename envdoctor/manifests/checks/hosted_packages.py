"""Dependencies that a notebook service has before the first step of a notebook, so that an installer keeps them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from envdoctor.knowledge.notebook_services import preinstalled_release, service_title
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import Violation, evaluate_version_rules
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.imports_of_guide import hosted_notebook
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem


def if_not_preinstalled(
    context: GuideContext,
    state: EnvironmentState,
    package: ResolvedPackage,
    violations: Iterable[Violation],
    problem: Problem,
) -> Problem:
    """A problem with a dependency, which is not certain where the release of the service does not have it."""
    service = hosted_notebook(context).lower()
    release = preinstalled_release(service, package.name)
    if not release or not package.is_dependency or problem.status not in ("error", "warning"):
        return problem
    packages = {**state.packages, package.name: package._replace(version=public_part(release))}
    rules = [each.rule for each in violations]
    found = evaluate_version_rules(build_machine(context.trace), build_stack(state, packages), rules)
    if any(item.fact == package.name for each in found for item in each.problem.evidence):
        return problem
    reason = f"{service_title(service)} has {package.name} {release} before the first step"
    return replace(problem, status="unknown", message=f"{problem.message} (not certain: {reason})")
