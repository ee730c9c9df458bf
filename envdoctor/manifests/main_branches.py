"""Main branches of repositories that today exclude the releases of a guide."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import Requirement, parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.resolution.requirement import InstallRequirement

MAIN_BRANCH = lazy_pattern(r"git\+\w+://[^@#]+?(?:\.git)?(?:@(?:main|master|HEAD))?(?:#.*)?")
UNFIT_BRANCH = (
    "not from an index: its main branch does not fit these requirements today ({}): find the commit of their time"
)


def unfit_branches(context: GuideContext, state: EnvironmentState) -> dict[str, str]:
    """The packages of main branches that cannot be installed next to the others, with the reason.

    The newest release stands for the main branch. An environment that has the package as a dependency of another one
    keeps that release; only one of both can be installed.
    """
    installs = (each.action for each in context.trace.installs if each.after.name == state.name)
    named = [each for action in installs for each in action.requirements]
    found: dict[str, str] = {}
    for each in named:
        if each.name and MAIN_BRANCH.fullmatch(each.url) and (reason := _misfit(context, state, each)):
            found[each.name] = UNFIT_BRANCH.format(reason)
    return found


def _misfit(context: GuideContext, state: EnvironmentState, source: InstallRequirement) -> str:
    newest = next((each.version for each in releases_in_range(source.name, "")), "")
    others = [each for name, each in state.packages.items() if name != source.name and each.version]
    for each in others if newest else ():
        for bound in _requirements(context, state, each.name, public_part(each.version)):
            if bound.name == source.name and satisfies(newest, bound.specifier) is False:
                return f"{each.name} {each.version} requires {source.name}{bound.specifier}"
    fixed = {each.name: each for each in others if each.pinned}
    for bound in _requirements(context, state, source.name, newest) if newest else ():
        package = fixed.get(bound.name)
        if package and satisfies(public_part(package.version), bound.specifier) is False:
            return f"it requires {bound.name}{bound.specifier}, not {package.version}"
    return ""


def _requirements(context: GuideContext, state: EnvironmentState, name: str, version: str) -> Iterator[Requirement]:
    index = context.index_facts
    texts = index.requires(name, version) if index else requirements_of_release(name, version)
    for text in Markers(state.python or context.trace.python, context.platform).applicable(texts):
        if (found := parse_requirement(text)) and found.specifier:
            yield found
