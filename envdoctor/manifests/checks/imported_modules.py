"""Imports of missing names in modules of dependencies that nothing imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envdoctor.knowledge.imports import BrokenImport, broken_imports
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import Violation
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.resolution.index_facts import InstalledSet
from envdoctor.rules.registry import Problem

_MISSING_NAME = "PKG049"


def if_module_is_imported(
    context: GuideContext, state: EnvironmentState, violations: Sequence[Violation], problem: Problem
) -> Problem:
    """The problem of imports; a note if they are all in modules of a dependency that its requirer never imports.

    axolotl requires optimum, of which it imports optimum.bettertransformer, and not optimum.exporters.
    """
    is_judged = problem.status in ("error", "warning") and context.index_facts is not None
    if not is_judged or any(each.rule.id != _MISSING_NAME for each in violations):
        return problem
    installed = installed_set(context, state, ())
    imports = [broken for each in violations for broken in _imports_of(state, each)]
    unused = [_unused_module(context, installed, state, each) for each in imports]
    if not unused or not all(unused):
        return problem
    return replace(problem, status="info", message=f"{problem.message} ({'; '.join(dict.fromkeys(unused))})")


def _imports_of(state: EnvironmentState, violation: Violation) -> Iterator[BrokenImport]:
    packages = [state.packages.get(item.fact) for item in violation.problem.evidence]
    return broken_imports({each.name: each.version for each in packages if each})


def _unused_module(
    context: GuideContext, installed: InstalledSet, state: EnvironmentState, broken: BrokenImport
) -> str:
    """The reason why the import of a module does not run; empty if it can."""
    importer, module = state.packages[broken.importer.package], broken.importer.module
    top, _, rest = module.partition(".")
    is_named = not importer.is_dependency or any(each.top == top for each in installed.imports)
    if not rest or is_named or context.index_facts is None:
        return ""
    requiring = importer.reason.removeprefix("required by ").partition(" ")[0]
    is_imported = context.index_facts.imports_module(installed, requiring, module)
    return f"{requiring} does not import {module}" if is_imported is False else ""
