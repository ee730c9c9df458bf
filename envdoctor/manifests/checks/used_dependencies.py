"""Problems of dependencies: unused ones, and those of which a repository can require another release."""

from __future__ import annotations

import re

from msgspec.structs import replace

from envdoctor.knowledge.releases import required_specifier
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.unread_sources import unread_repositories
from envdoctor.resolution.index_facts import InstalledSet
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem


def of_used_dependency(
    context: GuideContext, installed: InstalledSet, package: ResolvedPackage, problem: Problem
) -> Problem:
    """The problem of an import; a note if the package is a dependency that its requirer never imports.

    Projects require packages that only the code of a model uses: ms-swift requires attrdict.
    """
    if not package.is_dependency or problem.status != "warning" or context.index_facts is None:
        return problem
    requiring = package.reason.removeprefix("required by ").partition(" ")[0]
    if context.index_facts.imports_package(installed, requiring, package.name) is not False:
        return problem
    return replace(problem, status="info", message=f"{problem.message} ({requiring} does not import {package.name})")


def can_be_newer(context: GuideContext, state: EnvironmentState, package: ResolvedPackage) -> bool:
    """Whether a repository that is not read can require a newer release of a dependency than the solver selects."""
    if not package.is_dependency or not unread_repositories(context, state):
        return False
    name, _, version = package.reason.removeprefix("required by ").partition(" ")
    return not re.search(r"<|==|~=", required_specifier(name, version, package.name))
