"""Code that means another package than the one of the same module name that a step installs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.knowledge.namesakes import Namesake, namesakes
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.imports_of_guide import is_started
from envdoctor.resolution.index_facts import CodeImport
from envdoctor.rules.registry import Problem


def uses_of_namesakes(
    context: GuideContext, state: EnvironmentState, used: Sequence[CodeImport]
) -> Iterator[Problem]:
    """The first use of each module that the installed package lacks, if the package that is meant is not there."""
    for row in namesakes():
        package = state.packages.get(row.package)
        if package is None or package.is_dependency or _is_given(context, state, row):
            continue
        first = next((each for each in used if _is_lacking(row, each)), None)
        if first is None:
            continue
        name = ".".join(filter(None, (first.module, first.name)))
        place = first.file or f"line {first.line}"
        is_error = not first.file or (is_started(context, first.line) and first.is_certain)
        yield Problem(
            "error" if is_error else "warning",
            f"{place} uses {name} of {row.meant}, and {row.package} is another project with the module {row.module}",
            (
                table_evidence("import", name, place),
                guide_evidence(context, package.name, package.reason, package.line),
                table_evidence(row.package, f"does not have {name}", row.source, row.date),
            ),
            f"Install {row.meant} in place of {row.package}.",
            install_step(row.meant),
            line=package.line,
        )


def _is_lacking(row: Namesake, used: CodeImport) -> bool:
    top, _, rest = f"{used.module}.{used.name}".strip(".").partition(".")
    return top == row.module and (bool(rest) or row.names == "*") and row.lacks(rest)


def _is_given(context: GuideContext, state: EnvironmentState, row: Namesake) -> bool:
    """Whether the package that is meant, or any package of an address, is installed as well."""
    if row.meant in state.packages:
        return True
    requirements = (each for install in context.trace.installs for each in install.action.requirements)
    return any(row.module in each.url.lower() for each in requirements if each.url)
