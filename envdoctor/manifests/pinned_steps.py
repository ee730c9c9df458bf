"""An install step with another release of one of its packages."""

from __future__ import annotations

from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.step_resolution import resolve_step
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import Resolution
from envdoctor.resolution.step import StepSolver


def resolve_with_pin(install: InstallStep, pin: str, solver: StepSolver | None) -> Resolution | None:
    """The resolution of a step that names `pin`, such as "torch==2.8.0"; None without a solver, or if it stops."""
    named = parse_install_requirement(pin, install.action.line)
    if named is None or solver is None or solver.reason:
        return None
    others = [each for each in install.action.requirements if each.name != named.name]
    action = install.action._replace(requirements=(*others, named))
    resolution = resolve_step(action, install.before, install.target, solver)
    return None if resolution.state == "unresolved" else resolution
