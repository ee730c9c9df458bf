"""Checks on names that the Python of an environment, or its torch, does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from envdoctor.core.records import Evidence, Status
from envdoctor.knowledge.standard_library import LibraryChange, find_name, later_names, removed_names
from envdoctor.knowledge.torch_removals import find_module, removed_modules
from envdoctor.manifests.certain_packages import certain_packages
from envdoctor.manifests.checkout_code import MAX_MODULES, Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, python_evidence, table_evidence
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.checks.used_dependencies import of_used_dependency
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.imports_of_guide import imports_of_guide
from envdoctor.manifests.step_resolution import URL_ORIGIN
from envdoctor.resolution.index_facts import IndexFacts, RemovedImport
from envdoctor.rules.registry import Problem, rule

WHATS_NEW = "https://docs.python.org/3/whatsnew/{}.html"
RELEASES = "https://github.com/pytorch/vision/releases/tag/v0.17.0"
_BRINGS_SETUPTOOLS = ("conda", "image")


@rule(
    "RUN134",
    kind="guide",
    severity=("error", "warning", "info"),
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
    for state, index in _known_sets(context):
        installed = installed_set(context, state, ())
        for found in index.removed_imports(installed):
            if not (found.name == "distutils" and _has_setuptools(state)):
                python = state.python or context.trace.python
                evidence = python_evidence(context, state)
                for problem in _removed_import(context, found, state, f"Python {python}", evidence):
                    yield of_used_dependency(context, installed, state.packages[found.user.name], problem)


@rule(
    "RUN136", kind="guide", severity=("error", "warning", "info"), cause="library-too-new", url=RELEASES,
    needs=("release", "python"),
)  # fmt: skip
def import_needs_what_torch_removed(context: GuideContext) -> Iterator[Problem]:
    """An old package imports a module that the installed torch, torchvision or torchaudio no longer has.

    `torch._six` ended with 2.0, `torchvision.transforms.functional_tensor` with 0.17, `torchaudio.backend` with 2.9.
    A package without an upper limit is installed with the newest torch. The code of the guide is judged as well.
    """
    for state, index in _known_sets(context):
        installed = installed_set(context, state, ())
        for found in index.removed_torch_imports(installed) if installed.torch_family else ():
            name = found.since.partition(" ")[0]
            package = state.packages[name]
            evidence = guide_evidence(context, name, package.reason, package.line)
            for problem in _removed_import(context, found, state, f"{name} {package.version}", evidence):
                yield of_used_dependency(context, installed, state.packages[found.user.name], problem)
        removed = removed_modules(installed.torch_family)
        for used in imports_of_guide(context) if removed else ():
            if name := find_module(removed, used.module, used.name):
                row = removed[name]
                yield Problem(
                    "error",
                    f"the code imports {name}, which {row.package} {row.version} removed, and the steps install "
                    f"{row.package} {installed.torch_family[row.package]}",
                    (
                        guide_evidence(context, "import", name, used.line),
                        table_evidence(name, f"gone since {row.package} {row.version}", row.source, row.date),
                    ),
                    f"Use {row.package} below {row.version}, or the public API.",
                    line=used.line,
                )


def _known_sets(context: GuideContext) -> Iterator[tuple[EnvironmentState, IndexFacts]]:
    index = context.index_facts
    for environment in context.environments if index else ():
        state = environment.state
        is_known = state.resolution not in ("unresolved", "conflict") and not state.is_superseded
        if index and is_known and state.packages and certain_packages(context.trace, state):
            yield state, index


def _has_setuptools(state: EnvironmentState) -> bool:
    """Whether setuptools, with its copy of distutils, can be there without a step that installs it."""
    return state.tool in _BRINGS_SETUPTOOLS or bool(state.image) or not state.tool


def _removed_import(
    context: GuideContext, found: RemovedImport, state: EnvironmentState, installed: str, evidence: Evidence
) -> Iterator[Problem]:
    package = state.packages[found.user.name]
    if package.name not in certain_packages(context.trace, state):
        return
    patching = _setting_code(found.name, state, context.guide.checkout)
    line = line_of(context, package.line, package.reason)
    what, _, version = found.since.partition(" ")
    where = "its import fails" if found.is_loaded else "the import of that module fails"
    status: Status = "error" if found.is_loaded else "warning"
    if package.is_dependency:
        status = "warning" if found.is_loaded else "info"
    unless = f" (unless {patching} sets it first)" if patching else ""
    yield Problem(
        "info" if patching else status,
        f"{found.user} imports {found.name}, which {found.since} removed: {where} with {installed}{unless}",
        (
            guide_evidence(context, package.name, package.reason, package.line),
            table_evidence(found.place, found.name, found.wheel),
            evidence,
        ),
        f"Use a newer release of {package.name} or a package that replaces it, or {what} below {version}.",
        line=line,
        url=WHATS_NEW.format(version) if what == "Python" else "",
    )


def _setting_code(name: str, state: EnvironmentState, checkout: Checkout | None) -> str:
    """The code that can set an attribute of a module of Python: a file of the checkout, or a repository.

    DeepSeek-VL2 and Janus set `collections.Mapping` before they import attrdict.
    """
    module, _, attribute = name.rpartition(".")
    if not module:
        return ""
    paths = sorted(each for each in checkout.paths if each.endswith(".py"))[:MAX_MODULES] if checkout else ()
    sets = re.compile(rf"\bsetattr\(\s*{re.escape(module)}\s*,|\b{re.escape(module)}\.{attribute}\s*=(?!=)")
    setting = (path for path in paths if checkout and sets.search(checkout.text(path)))
    unread = (each.name for each in state.packages.values() if each.origin == URL_ORIGIN and not each.wheel)
    repositories = (f"the code of {each}, which was not read," for each in unread)
    return next(chain(setting, repositories), "")


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
            python_evidence(context, state),
            table_evidence(name, change, row.source, row.date),
        ),
        f"Use Python {row.version} or newer." if is_new else f"Use a Python below {row.version}.",
        line=line,
        url=WHATS_NEW.format(row.version),
    )
