"""Checks on modules that a release imports, and that neither its requirements nor a step installs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.records import Status
from envdoctor.core.remedies import steps
from envdoctor.knowledge.module_names import is_generic, packages_of_module
from envdoctor.manifests.certain_packages import FROM_CONDA, certain_packages
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.further_packages import installed_further
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.checks.program_imports import named_packages, names_of_module
from envdoctor.manifests.checks.used_dependencies import of_used_dependency, of_used_requirement
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.install_texts import has_extras_in_text, names_in_text
from envdoctor.manifests.unread_sources import UnreadSource, list_sources, unread_steps
from envdoctor.resolution.index_facts import UndeclaredImport
from envdoctor.rules.registry import Problem, rule

DECLARING = "https://packaging.python.org/en/latest/discussions/install-requires-vs-requirements/"
_WHEN = {"import": "at its import", "code": "in a module that the code imports"}


@rule(
    "RUN220", kind="guide", severity=("error", "warning", "info", "unknown"), cause="dependency-pin-violated",
    url=DECLARING, needs=("release", "python"),
)  # fmt: skip
def release_imports_what_no_package_has(context: GuideContext) -> Iterator[Problem]:
    """An old release imports a module that it does not require, and that no package of the environment has.

    A dependency of that time required the package, and its newest release no longer does: trl 0.11 imports rich,
    which came with tyro. Imports in functions, under conditions and in a `try` with a handler are left out.

    From Python 3.12 on, pkg_resources is such a module: new environments have no setuptools, and 82 removed it.
    """
    if context.index_facts is None:
        return
    for environment in context.environments:
        state = environment.state
        certain = certain_packages(context.trace, state)
        if state.resolution in ("unresolved", "conflict") or state.is_superseded or not certain:
            continue
        installed = installed_set(context, state, [name for name in state.packages if name in certain])
        has_conda = any(install.action.tool == "conda" for install in context.trace.installs)
        sources = unread_steps(context, state)
        given = named_packages(context, state).union(*(each.packages for each in sources))
        given |= FROM_CONDA if has_conda else set()
        text = context.guide.checkout.guide_text if context.guide.checkout else ""
        for found in context.index_facts.undeclared_imports(installed):
            if has_extras_in_text(found.user.name, "\n".join(context.guide.lines)):
                continue
            packages = names_of_module(found.module)
            if found.user.name in certain and given.isdisjoint(packages) and not names_in_text(packages, text):
                user = state.packages[found.user.name]
                problem = _undeclared(context, found, state, _gap(context, sources))
                problem = of_used_requirement(context, state.packages, user, found.place, problem)
                yield of_used_dependency(context, installed, user, problem)


def _gap(context: GuideContext, sources: Sequence[UnreadSource]) -> str:
    """What can bring further packages and is not read; empty if all packages are known."""
    if opened := [each for each in sources if each.is_open]:
        return f"{list_sources(opened)} can bring it"
    for install in context.trace.installs:
        if install.action.tool != "conda" and install.resolution.state != "solved":
            return f"the requirements of line {install.action.line} are not all read"
    return ""


def _undeclared(context: GuideContext, found: UndeclaredImport, state: EnvironmentState, gap: str) -> Problem:
    user = state.packages[found.user.name]
    known = packages_of_module(found.module)
    index = context.index_facts
    package = known.install if known else ""
    if index and not known and not is_generic(found.module):
        package = index.module_package(found.module)
    if found.module == "pkg_resources":
        package = "setuptools<82"
    status: Status = "unknown" if gap else "warning" if user.is_dependency else "error"
    fix, remedies = f"Find out which project has the module {found.module}, and install it.", steps()
    if package:  # the newest release can require NumPy 2, or a newer torch than that of the environment
        fix, remedies = installed_further(context, package) if "://" not in package else ("", ())
        fix = f"Install {package}." if remedies or not fix else fix
    return Problem(
        status,
        f"{found.user} imports {found.module} {_WHEN.get(found.kind, '')}, and no package of the environment has it"
        + (f" (not certain: {gap})" if gap else ""),
        (
            guide_evidence(context, user.name, user.reason, user.line),
            table_evidence(found.place, f"import {found.module}", found.wheel),
        ),
        fix,
        remedies,
        line=line_of(context, user.line, user.reason),
    )
