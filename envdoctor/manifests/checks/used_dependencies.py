"""Lowers problems of dependencies that the package which requires them never imports."""

from __future__ import annotations

from msgspec.structs import replace

from envdoctor.manifests.context import GuideContext
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
