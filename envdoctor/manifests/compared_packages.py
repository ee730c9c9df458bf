"""The packages that steps name, with the releases that programs are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.knowledge.images import is_bare_image
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import newest_patch, public_part, satisfies
from envdoctor.manifests.certain_packages import is_conda_base
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.main_branches import MAIN_BRANCH
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY

_KNOWN = ("solved", "partial", "tables")
_MAX_CONDA = 20
_IF_CONDA = "if conda selects it"
_IF_MAIN = "if the main branch, which this step installs, is about as new"


class ComparedPackage(NamedTuple):
    """A package and its release."""

    name: str
    version: str
    line: int
    reason: str
    is_dependency: bool
    condition: str  # on which it is installed: about the newest one, which conda selects; empty for a known release
    state: EnvironmentState

    @property
    def in_words(self) -> str:
        """The release, and the condition on which it is installed."""
        return f"{self.name} {self.version}" + (f" ({self.condition})" if self.condition else "")

    @property
    def is_of_main_branch(self) -> bool:
        """Whether a step installs the main branch of its repository."""
        return self.condition == _IF_MAIN


def conda_packages(context: GuideContext, state: EnvironmentState) -> dict[str, ResolvedPackage]:
    """The packages that steps of conda name without a version, with their newest release on PyPI.

    Channels have about the newest release. Without the versions that a solver would select, what is installed with
    them is not known.
    """
    found: dict[str, ResolvedPackage] = {}
    for install in context.trace.installs:
        if install.action.tool != "conda" or install.before.name != state.name:
            continue
        for each in install.action.requirements:
            package = state.packages.get(each.name)
            if each.specifier or each.url or (package and package.origin != "conda") or is_conda_base(each.name):
                continue
            newest = _newest(context, state, each.name) if len(found) < _MAX_CONDA else ""
            if newest:
                found[each.name] = ResolvedPackage(each.name, newest, each.line, each.text, origin="conda")
    return found


def packages_of_main_branches(context: GuideContext, state: EnvironmentState) -> dict[str, ResolvedPackage]:
    """The packages that steps install from the main branch of their repository, with their newest release on PyPI."""
    index = context.index_facts
    found: dict[str, ResolvedPackage] = {}
    for install in context.trace.installs if index else ():
        for each in install.action.requirements if install.before.name == state.name else ():
            is_main = each.name and each.name not in TORCH_FAMILY and MAIN_BRANCH.fullmatch(each.url)
            newest = index.newest_release(each.name) if index and is_main and len(found) < _MAX_CONDA else None
            if index and newest and index.is_published_from(each.name, each.url):
                found[each.name] = ResolvedPackage(each.name, newest.version, each.line, each.text, origin=each.url)
    return found


def _newest(context: GuideContext, state: EnvironmentState, name: str) -> str:
    """The newest release, if the Python and the other packages of the environment permit it; else empty."""
    index = context.index_facts
    newest = index.newest_release(name) if index else None
    if index is None or newest is None:
        return ""
    python = state.python or context.trace.python
    if newest.requires_python and satisfies(newest_patch(python), newest.requires_python) is False:
        return ""
    for bound in filter(None, map(parse_requirement, index.requires(name, newest.version))):
        other = state.packages.get(bound.name)
        version = public_part(other.version) if other and bound.applies_to(python) else ""
        if version and satisfies(version, bound.specifier) is False:
            return ""
    return newest.version


def compared_packages(context: GuideContext) -> Iterator[ComparedPackage]:
    """The packages of the last environment whose releases are known, or about the newest one."""
    for environment in context.environments[-1:]:
        state = environment.state
        if state.image and not is_bare_image(state.image):
            continue
        packages = {**state.packages, **conda_packages(context, state)}
        for name, package in packages.items():
            is_of_index = package.origin == "PyPI" or (name in TORCH_FAMILY and package.origin != "conda")
            is_known = is_of_index and state.resolution in _KNOWN and package.version
            is_sure = not package.is_dependency or state.resolution == "solved"
            is_conda = package.origin == "conda" and bool(package.version) and not package.is_dependency
            if (is_known and is_sure) or is_conda:
                yield ComparedPackage(
                    name, public_part(package.version), package.line, package.reason, package.is_dependency,
                    _IF_CONDA if is_conda and not package.specifier else "", state,
                )  # fmt: skip
        for name, package in packages_of_main_branches(context, state).items():
            version, line, reason = public_part(package.version), package.line, package.reason
            yield ComparedPackage(name, version, line, reason, is_dependency=False, condition=_IF_MAIN, state=state)


def newest_of_main_branch(context: GuideContext, name: str) -> str:
    """The newest release of a package of which a step installs the main branch; empty for others."""
    state = context.environments[-1].state if context.environments else None
    package = packages_of_main_branches(context, state).get(name) if state else None
    return public_part(package.version) if package else ""
