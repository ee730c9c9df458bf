"""Checks on names of the standard library that the Python of an environment does not have."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.standard_library import LibraryChange, find_name, later_names, removed_names
from envdoctor.manifests.certain_packages import certain_packages
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.imports_of_guide import imports_of_guide
from envdoctor.resolution.index_facts import RemovedImport
from envdoctor.rules.registry import Problem, rule

WHATS_NEW = "https://docs.python.org/3/whatsnew/{}.html"
_BRINGS_SETUPTOOLS = ("conda", "image")


@rule(
    "RUN134",
    kind="guide",
    severity=("error", "warning"),
    cause="python-unsupported",
    url=WHATS_NEW.format("3.12"),
    needs=("release", "python"),
)
def import_needs_what_python_removed(context: GuideContext) -> Iterator[Problem]:
    """An old package imports a name of the standard library that the Python of the environment no longer has.

    Its metadata permit the Python, because they were written before its release. The files that `import` of the
    package runs prove the use: `from collections import Mapping` (gone in 3.10), `imp` and `distutils` (3.12), `cgi`
    and `telnetlib` (3.13).
    """
    index = context.index_facts
    for environment in context.environments if index else ():
        state = environment.state
        certain = certain_packages(context.trace, state)
        if state.resolution in ("unresolved", "conflict") or state.is_superseded or not certain or not state.packages:
            continue
        assert index
        for found in index.removed_imports(installed_set(context, state, ())):
            package = state.packages[found.user.name]
            if package.name in certain and not (found.name == "distutils" and _has_setuptools(state)):
                yield _removed_import(context, found, state)


def _has_setuptools(state: EnvironmentState) -> bool:
    """Whether setuptools, with its copy of distutils, can be there without a step that installs it."""
    return state.tool in _BRINGS_SETUPTOOLS or bool(state.image) or not state.tool


def _removed_import(context: GuideContext, found: RemovedImport, state: EnvironmentState) -> Problem:
    package = state.packages[found.user.name]
    line = line_of(context, package.line, package.reason)
    python = state.python or context.trace.python
    return Problem(
        "error" if not package.is_dependency else "warning",
        f"{found.user} imports {found.name}, which Python {found.python} removed: its import fails with Python "
        f"{python}",
        (
            guide_evidence(context, package.name, package.reason, package.line),
            table_evidence(found.place, found.name, found.wheel),
            guide_evidence(context, "Python", python, state.python_line or line),
        ),
        f"Use a newer release of {package.name} or a package that replaces it, or a Python below {found.python}.",
        line=line,
        url=WHATS_NEW.format(found.python),
    )


@rule(
    "RUN135", kind="guide", severity=("error", "warning"), cause="python-unsupported", url=WHATS_NEW.format("3.11"),
    needs=("python",),
)  # fmt: skip
def code_needs_another_python(context: GuideContext) -> Iterator[Problem]:
    """The code of a guide imports a name of the standard library that its Python lacks, or no longer has.

    `tomllib` and `enum.StrEnum` are new in 3.11; `imp` and `distutils` are gone in 3.12.
    """
    states = [each.state for each in context.environments if each.state.python]
    for used in imports_of_guide(context) if len({state.python for state in states}) == 1 else ():
        state = states[0]
        added = find_name(later_names(state.python), used.module, used.name)
        removed = find_name(removed_names(state.python), used.module, used.name)
        if removed and removed[0] == "distutils" and (_has_setuptools(state) or "setuptools" in state.packages):
            removed = None
        if added:
            yield _of_another_python(context, used.line, added, state, is_new=True)
        elif removed:
            yield _of_another_python(context, used.line, removed, state, is_new=False)


def _of_another_python(
    context: GuideContext, line: int, found: tuple[str, LibraryChange], state: EnvironmentState, *, is_new: bool
) -> Problem:
    name, row = found
    change = f"new in Python {row.version}" if is_new else f"gone since Python {row.version}"
    return Problem(
        "error",
        f"the code imports {name}, which is {change}, and the environment has Python {state.python}",
        (
            guide_evidence(context, "import", name, line),
            guide_evidence(context, "Python", state.python, state.python_line),
            table_evidence(name, change, row.source, row.date),
        ),
        f"Use Python {row.version} or newer." if is_new else f"Use a Python below {row.version}.",
        line=line,
        url=WHATS_NEW.format(row.version),
    )
