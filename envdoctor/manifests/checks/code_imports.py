"""Checks on the imports of code, and on the modules of `python -m`, by the wheels that the guide installs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.knowledge.images import is_bare_image
from envdoctor.knowledge.imports import spans_of_name
from envdoctor.knowledge.modules import spans_of_module, spans_of_module_name
from envdoctor.knowledge.names import Span
from envdoctor.knowledge.names import packages as packages_with_tables
from envdoctor.knowledge.versions import dotted_numbers, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.fitting_releases import excluding_package
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.compared_packages import conda_packages
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.imports_of_guide import (
    MAX_IMPORTS,
    MAX_OF_PROGRAMS,
    attributes_of_guide,
    imports_of_guide,
    imports_of_named_programs,
    imports_of_programs,
    is_started,
)
from envdoctor.resolution.index_facts import AbsentImport, CodeImport, IndexedRelease
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

_KNOWN = ("solved", "partial", "tables")  # with conda packages, only what a step names is known
IMPORTS = "https://docs.python.org/3/reference/simple_stmts.html#the-import-statement"


@rule("RUN078", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=IMPORTS)
def code_uses_what_the_installed_release_lacks(context: GuideContext) -> Iterator[Problem]:
    """Code imports a name, or a command runs a module, that the wheel of the installed release does not have.

    Packages with a table of names have rules of their own: RUN064 and RUN077. A package that conda takes from a
    channel without a version is compared with its newest release on PyPI: a warning. So are programs that the text
    names and no command starts.
    """
    imported = [each for each in imports_of_guide(context) if each.top not in packages_with_tables()]
    nested = [each for each in attributes_of_guide(context) if "." in each.name]  # of submodules
    guide = (*imported[:MAX_IMPORTS], *nested)
    of_programs = (*imports_of_programs(context), *imports_of_named_programs(context))
    unique = {(each.module, each.name): each for each in reversed((*guide, *of_programs))}
    started = {each.line for each in context.guide.launches}
    used = sorted(unique.values(), key=lambda each: (bool(each.file), each.line not in started, each))
    if context.index_facts is None or not used:
        return
    for environment in context.environments[-1:]:
        state = environment.state
        if state.resolution not in _KNOWN or (state.image and not is_bare_image(state.image)):
            continue
        yield from _of_conda(context, state, used)
        if not state.packages:
            continue
        absent = context.index_facts.absent_imports(installed_set(context, state, ()), used[:MAX_OF_PROGRAMS])
        for each, others in _by_release((*absent, *_absent_by_tables(state, used))):
            package = state.packages[each.release.name]
            is_named = not package.is_dependency and (state.resolution == "partial" or each.used.file)
            if state.resolution == "solved" or is_named:
                is_of_program = bool(each.used.file)
                yield _of_program(context, state, each, others) if is_of_program else _absent(context, each, package)


def _of_conda(context: GuideContext, state: EnvironmentState, used: Sequence[CodeImport]) -> Iterator[Problem]:
    """What programs import, and the newest releases of packages lack that conda selects without a version."""
    of_programs = [each for each in used if each.file]
    packages = conda_packages(context, state) if context.index_facts and of_programs else {}
    if not packages or context.index_facts is None:
        return
    installed = installed_set(context, state, ())
    installed = installed._replace(versions={name: each.version for name, each in packages.items()})
    for absent, others in _by_release(context.index_facts.absent_imports(installed, of_programs[:MAX_OF_PROGRAMS])):
        package = packages[absent.release.name]
        further = f" (nor {len(others)} more of its names that the programs import)" if others else ""
        yield Problem(
            "warning",
            f"{absent.used.file} imports {absent.name}, which {absent.release} does not have{further}: it fails if "
            "conda selects this newest release, or one that is about as new",
            (
                table_evidence("import", absent.name, absent.used.file),
                guide_evidence(context, package.name, package.reason, package.line),
                table_evidence(str(absent.release), f"no {absent.name}", "the wheel on the package index"),
            ),
            f"Name in this step the release of {package.name} that the code was written for.",
            line=package.line,
        )


def _absent_by_tables(state: EnvironmentState, used: Sequence[CodeImport]) -> Iterator[AbsentImport]:
    """The imports of a checkout that the tables of modules show to be absent: some modules are hard to read."""
    for each in used:
        full = f"{each.module}.{each.name}".strip(".")
        # A module that is gone can have given its name to a function: `evaluate.load`.
        named = spans_of_module_name(each.module, each.name) if each.name else ()
        for name, spans in ((each.module, spans_of_module(each.module)), (full, named)):
            package = state.packages.get(spans[0].package) if spans and each.file else None
            version = package.version if package and package.origin == "PyPI" else ""
            if version and "+" not in version and not any(span.can_be_in(version) for span in spans):
                yield AbsentImport(each, name, IndexedRelease(spans[0].package, version, ""))
                break


def _spans_of_name(used: CodeImport) -> tuple[Span, ...]:
    named = spans_of_module_name(used.module, used.name) if used.name else ()
    return named or (spans_of_module(f"{used.module}.{used.name}") if used.name else ())


def _by_release(absent: Sequence[AbsentImport]) -> list[tuple[AbsentImport, list[CodeImport]]]:
    """The imports, of a checkout only the first of each release, each with the further ones."""
    groups: dict[tuple[object, ...], dict[CodeImport, AbsentImport]] = {}
    for each in absent:
        key = (each.release.name,) if each.used.file else (each.release.name, each.used)
        groups.setdefault(key, {}).setdefault(each.used, each)
    return [(next(iter(group.values())), list(group)[1:]) for group in groups.values()]


def _of_program(
    context: GuideContext, state: EnvironmentState, absent: AbsentImport, others: Sequence[CodeImport]
) -> Problem:
    """The import of a file of the checkout, with the last release that has the name and fits the other packages."""
    package = state.packages[absent.release.name]
    used, line = absent.used, absent.used.line or package.line
    last = _last_release((used, *others), package.version)
    index, python = context.index_facts, state.python or context.trace.python
    excluding = excluding_package(index, state.packages, package.name, last, python=python) if index and last else ""
    pin = f"{package.name}=={last}" if last and not excluding else ""
    reason = f"{excluding} excludes {package.name} {last}, which has it: " if excluding else ""
    return Problem(
        "error" if is_started(context, used.line) and not package.is_dependency else "warning",
        f"{used.file} imports {absent.name}, which {absent.release} does not have"
        + (f" (nor {len(others)} more of its names that the programs import)" if others else ""),
        (
            table_evidence("import", absent.name, used.file),
            guide_evidence(context, package.name, package.reason, package.line),
            table_evidence(str(absent.release), f"no {absent.name}", "the wheel on the package index"),
        ),
        f"Use {pin}, which has it."
        if pin
        else f"{reason}Name the release of {package.name} that the code was written for, or change the import.",
        install_step(pin) if pin else (),
        line=line,
    )


def _last_release(used: Sequence[CodeImport], version: str) -> str:
    """The last release below a version that has all names; empty if the tables do not show it."""
    periods: list[Span] = []
    for each in used:
        spans = (*_spans_of_name(each), *spans_of_module(each.module), *spans_of_name(each.module, each.name))
        older = [span for span in spans if span.last and satisfies(version, f">{span.last}")]
        if not older:
            return ""
        periods.append(older[0])
    oldest = min((span.last for span in periods), key=dotted_numbers)
    return oldest if all(span.can_be_in(oldest) for span in periods) else ""


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
