"""Checks on the imports of code, and on the modules of `python -m`, by the wheels that the guide installs."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.names import packages as packages_with_tables
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import MAX_IMPORTS, attributes_of_guide, imports_of_guide
from envdoctor.resolution.index_facts import AbsentImport
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

IMPORTS = "https://docs.python.org/3/reference/simple_stmts.html#the-import-statement"


@rule("RUN078", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=IMPORTS)
def code_uses_what_the_installed_release_lacks(context: GuideContext) -> Iterator[Problem]:
    """Code imports a name, or a command runs a module, that the wheel of the installed release does not have.

    Packages with a table of names have rules of their own: RUN064 and RUN077.
    """
    imported = [each for each in imports_of_guide(context) if each.top not in packages_with_tables()]
    nested = [each for each in attributes_of_guide(context) if "." in each.name]  # of submodules
    unique = {(each.module, each.name): each for each in reversed((*imported[:MAX_IMPORTS], *nested))}
    used = sorted(unique.values())
    if context.index_facts is None or not used:
        return
    for environment in context.environments[-1:]:
        state = environment.state
        if state.resolution not in ("solved", "partial") or state.image or not state.packages:
            continue
        absent = context.index_facts.absent_imports(installed_set(context, state, ()), used[: 2 * MAX_IMPORTS])
        for each in absent:
            package = state.packages[each.release.name]
            if state.resolution == "solved" or not package.is_dependency:
                yield _absent(context, each, package)


def _absent(context: GuideContext, absent: AbsentImport, package: ResolvedPackage) -> Problem:
    line = line_of(context, absent.used.line, absent.used.name or absent.used.module)
    return Problem(
        "warning" if package.is_dependency else "error",
        f"{absent.release} does not have {absent.name}, which line {line} uses",
        (
            guide_evidence(context, "import", absent.name, line),
            guide_evidence(context, package.name, package.reason, package.line),
            table_evidence(str(absent.release), f"no {absent.name}", "the wheel on the package index"),
        ),
        f"Name the release of {package.name} that the code was written for, or change the import.",
        line=line,
    )
