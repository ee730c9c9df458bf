"""Whether requirements have a solution together, as the solver of the steps finds it.

The built-in tables do not have the requirements of all packages, and an installer does not compare a command with the
requirements of what is installed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install
from envdoctor.knowledge.releases import leading_name
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.added_packages import with_packages
from envdoctor.manifests.assumed_python import USUAL_PYTHON
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrected_pins import CorrectedSet
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import ResolverTarget
from envdoctor.resolution.step import StepProblem, StepSolver, apart
from envdoctor.resolution.torch_sources import TORCH_FAMILY

_UNREAD = ("was not found in the package registry", "no usable wheels")  # another index or a build can have it


def solvable_pins(
    corrected: CorrectedSet, solver: StepSolver | None, findings: Sequence[Finding] = ()
) -> tuple[str, ...]:
    """The requirements of a set, with what errors install of further packages if these have a solution together.

    Otherwise those of the set alone, or with the ranges of the guide; none if neither has a solution. Without a
    solver, the requirements as they are.
    """
    solver = apart(solver)
    if solver is None or solver.reason or corrected.image:
        return corrected.requirements
    target = ResolverTarget(corrected.architecture, corrected.python or USUAL_PYTHON, corrected.glibc)
    complete = with_packages(corrected, _cures(findings)).requirements
    lists = dict.fromkeys((complete, corrected.requirements, corrected.wanted))
    return next((texts for texts in lists if not _conflict(texts, target, solver)), ())


def _cures(findings: Sequence[Finding]) -> list[str]:
    """What the first commands of errors install, as far as they are one installation from the index."""
    first = (each.remedies[0].steps for each in findings if each.status == "error" and each.remedies)
    steps = (each[0] for each in first if len(each) == 1)
    texts = [text for step in steps if isinstance(step, Install) and not step.from_source for text in step.packages]
    return list(
        {
            named.name: text for text in texts if (named := parse_install_requirement(text, 1)) and not named.url
        }.values()
    )


def contradiction(install: InstallStep, changes: dict[str, str], solver: StepSolver | None) -> str:
    """Why what a guide requires in an environment has no solution with other requirements; empty if it has one.

    `changes` replace the requirements of their packages. Empty also where the guide alone has no solution, and where
    a part of it comes from no index.
    """
    state = install.after
    if solver is None or solver.reason or state.image or state.resolution not in ("solved", "tables", "partial"):
        return ""
    own = _requirements(state)
    found = _conflict((own | changes).values(), install.target, solver)
    return found if found and not _conflict(own.values(), install.target, solver) else ""


def broken_requirement(
    context: GuideContext, line: int, names: Iterable[str], changed: Collection[str]
) -> tuple[str, str]:
    """An installed package, and what it requires and a step on a line replaces: `gradio 4.1 requires pydantic>=2`.

    Both are empty if there is none. The packages of `changed` are those that other commands replace.
    """
    before, after = _states(context, line)
    if before is None or after is None or context.index_facts is None:
        return "", ""
    installed = installed_set(context, after, ())
    for name in installed.versions.keys() & set(names):
        old, new = before.packages.get(name), public_part(installed.versions[name])
        for requirer, specifier in context.index_facts.specifiers_of(installed, name).items():
            package = leading_name(requirer)
            if package in changed:
                continue
            if old and satisfies(public_part(old.version), specifier) and satisfies(new, specifier) is False:
                return package, f"{requirer} requires {name}{specifier}"
    return "", ""


def permits(requirement: str, other: str) -> bool:
    """Whether a requirement permits another one of its package, which then can replace it."""
    own, new = parse_install_requirement(requirement, 0), parse_install_requirement(other, 0)
    if requirement == other or not own or not new:
        return requirement == other
    return not own.url and (not own.specifier or bool(new.pin and satisfies(new.pin, own.specifier)))


def replaced_pins(context: GuideContext, line: int, permitted: Collection[str]) -> tuple[str, ...]:
    """The pins of the guide whose packages a step on a line replaces, apart from the permitted ones."""
    before, after = _states(context, line)
    if before is None or after is None:
        return ()
    return tuple(
        f"{name}=={public_part(old.version)}"
        for name, old in sorted(before.packages.items())
        if old.pinned and old.version and "PyPI" in old.origin and name not in permitted
        and (new := after.packages.get(name)) and public_part(new.version) != public_part(old.version)
    )  # fmt: skip


def _states(context: GuideContext, line: int) -> tuple[EnvironmentState | None, EnvironmentState | None]:
    """The environment before and after the steps of a line; none if one of them has no solution."""
    steps = [each for each in context.trace.installs if each.action.line == line]
    is_solved = steps and all(each.resolution.state in ("solved", "partial") for each in steps)
    return (steps[0].before, steps[-1].after) if is_solved else (None, None)


def _requirements(state: EnvironmentState) -> dict[str, str]:
    """What the steps of pip and uv require from an index. A release of torch counts without its build."""
    return {
        name: f"{name}{each.specifier.partition('+')[0] if name in TORCH_FAMILY else each.specifier}"
        for name, each in state.requested.items()
        if not each.wheel and each.version and ("PyPI" in each.origin or each.origin.startswith("the PyTorch index"))
    }


def _conflict(texts: Iterable[str], target: ResolverTarget, solver: StepSolver) -> str:
    parsed = tuple(each for text in texts if (each := parse_install_requirement(text, 1)))
    solution = solver(StepProblem(parsed, (), (), {}, target))
    return "" if solution is None or any(each in solution.conflict for each in _UNREAD) else solution.conflict
