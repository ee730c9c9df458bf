"""Checks on the imports of code, and on the modules of `python -m`, by the wheels that the guide installs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envdoctor.core.records import Evidence
from envdoctor.knowledge.images import is_bare_image
from envdoctor.knowledge.names import packages as packages_with_tables
from envdoctor.knowledge.published import find_release
from envdoctor.manifests.absent_names import absent_by_tables, release_with_all
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.fitting_releases import excluding_package
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.checks.namesakes import uses_of_namesakes
from envdoctor.manifests.compared_packages import conda_packages, packages_of_main_branches
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
from envdoctor.manifests.named_models import first_release_of, is_named_model, named_models
from envdoctor.manifests.program_attributes import attributes_of_programs
from envdoctor.manifests.seeded_packages import if_not_seeded
from envdoctor.resolution.index_facts import AbsentImport, CodeImport
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

_MAX_OLDER = 3  # releases whose wheels are read in search for one with all names
_KNOWN = ("solved", "partial", "tables")  # with conda packages, only what a step names is known
IMPORTS = "https://docs.python.org/3/reference/simple_stmts.html#the-import-statement"


@rule("RUN078", kind="guide", severity=("error", "warning", "unknown"), cause="dependency-pin-violated", url=IMPORTS)
def code_uses_what_the_installed_release_lacks(context: GuideContext) -> Iterator[Problem]:
    """Code imports a name, or a command runs a module, that the wheel of the installed release does not have.

    Packages with a table of names have rules of their own: RUN064 and RUN077. A package that conda takes from a
    channel without a version is compared with its newest release on PyPI: a warning. So is one from the main branch
    of its repository, and so are programs that the text names and no command starts.

    Attributes are compared as well, `np.float` and `torchaudio.info`, and imports in functions that a program calls.
    What a handler or a check of the release guards is left out. A package with the module name of another project,
    such as whisper, lacks the names of the other one.
    """
    used = _used(context)
    if context.index_facts is None or not used:
        return
    for environment in context.environments[-1:]:
        state = environment.state
        if state.resolution not in _KNOWN or (state.image and not is_bare_image(state.image)):
            continue
        yield from _of_conda(context, state, used)
        yield from _of_main_branches(context, state, used)
        if not state.packages:
            continue
        by_tables = absent_by_tables(state.packages, used)
        yield from uses_of_namesakes(context, state, used)
        absent = context.index_facts.absent_imports(installed_set(context, state, ()), used)
        for each, *others in _by_release((*absent, *by_tables)):
            package = state.packages[each.release.name]
            is_named = not package.is_dependency and (state.resolution == "partial" or each.used.file)
            if state.resolution == "solved" or is_named:
                is_here = not each.used.file
                problem = (
                    _absent(context, each, package) if is_here else _of_program(context, state, [each, *others], used)
                )
                yield if_not_seeded(context, package, problem)


def _used(context: GuideContext) -> list[CodeImport]:
    """What is compared: imports, then attributes; of the guide first, then of the programs that commands start."""
    imported = [each for each in imports_of_guide(context) if each.top not in packages_with_tables()]
    of_programs = (*imports_of_programs(context), *imports_of_named_programs(context))
    started = {each.line for each in context.guide.launches}

    def chosen(*used: CodeImport) -> list[CodeImport]:
        unique = {(each.module, each.name): each for each in reversed(used)}
        found = sorted(unique.values(), key=lambda each: (bool(each.file), each.line not in started, each))
        return found[:MAX_OF_PROGRAMS]

    imports = chosen(*imported[:MAX_IMPORTS], *of_programs)
    known = {(each.module, each.name) for each in imports}
    attributes = chosen(*attributes_of_guide(context), *attributes_of_programs(context))
    models = chosen(*named_models(context))
    return [*imports, *(each for each in (*attributes, *models) if (each.module, each.name) not in known)]


def _of_conda(context: GuideContext, state: EnvironmentState, used: Sequence[CodeImport]) -> Iterator[Problem]:
    """What programs import, and the newest releases of packages lack that conda selects without a version."""
    packages = conda_packages(context, state) if context.index_facts else {}
    condition = "it fails if conda selects this newest release, or one that is about as new"
    yield from _of_newest(context, state, packages, used, (condition, "release"))


def _of_main_branches(
    context: GuideContext, state: EnvironmentState, used: Sequence[CodeImport]
) -> Iterator[Problem]:
    """What programs import, an older release has, and the newest one of a package from its main branch lacks."""
    packages = packages_of_main_branches(context, state)
    condition = "it fails if the main branch, which this step installs, is about as new"
    uncertain = [each._replace(is_certain=False) for each in used]
    yield from _of_newest(context, state, packages, uncertain, (condition, "commit or tag"))


def _of_newest(
    context: GuideContext,
    state: EnvironmentState,
    packages: Mapping[str, ResolvedPackage],
    used: Sequence[CodeImport],
    words: tuple[str, str],
) -> Iterator[Problem]:
    """What programs import, and these releases lack. The words are the condition, and what a step can name."""
    condition, name = words
    of_programs = [each for each in used if each.file]
    if not packages or not of_programs or context.index_facts is None:
        return
    installed = installed_set(context, state, ())
    installed = installed._replace(versions={name: each.version for name, each in packages.items()})
    by_tables = absent_by_tables({name: each._replace(origin="PyPI") for name, each in packages.items()}, of_programs)
    for absent, *others in _by_release((*context.index_facts.absent_imports(installed, of_programs), *by_tables)):
        package = packages[absent.release.name]
        verb = "uses" if absent.used.is_attribute else "imports"
        yield Problem(
            "warning",
            f"{absent.used.file} {verb} {absent.name}, which {absent.release} does not have{_further(others)}: "
            f"{condition}",
            (
                table_evidence("attribute" if absent.used.is_attribute else "import", absent.name, absent.used.file),
                guide_evidence(context, package.name, package.reason, package.line),
                _evidence_of_release(absent),
            ),
            f"Name in this step the {name} of {package.name} that the code was written for.",
            line=package.line,
        )


def _by_release(absent: Sequence[AbsentImport]) -> list[list[AbsentImport]]:
    """The absent names, those of a checkout grouped by their release."""
    groups: dict[tuple[object, ...], dict[CodeImport, AbsentImport]] = {}
    for each in absent:
        key = (each.release.name,) if each.used.file else (each.release.name, each.used)
        groups.setdefault(key, {}).setdefault(each.used, each)
    return [list(group.values()) for group in groups.values()]


def _further(others: Sequence[AbsentImport]) -> str:
    used = any(each.used.is_attribute for each in others)
    verb = "use" if used else "import"
    return f" (nor {len(others)} more of its names that the programs {verb})" if others else ""


def _of_program(
    context: GuideContext, state: EnvironmentState, absent: Sequence[AbsentImport], all_used: Sequence[CodeImport]
) -> Problem:
    """The use in a file of the checkout, with a release that has all used names and fits the other packages."""
    first, *others = absent
    package = state.packages[first.release.name]
    used, line = first.used, first.used.line or package.line
    last, newer = _release_with_all(context, state, absent, all_used)
    if package.name in TORCH_FAMILY or not _is_installable(context, state, package.name, last):
        last = ""
    index, python = context.index_facts, state.python or context.trace.python
    excluding = excluding_package(index, state.packages, package.name, last, python=python) if index and last else ""
    newer = newer if last else ""
    pin = f"{package.name}=={last}" if last and not excluding and not newer else ""
    if needed := first_release_of(each.used for each in absent):
        pin = f"{package.name}>={needed}"
    reason = f"{excluding} excludes {package.name} {last}, which has it: " if excluding else ""
    reason = f"{package.name} {last} has it, but not {newer}, which the programs use as well: " if newer else reason
    verb, change = ("uses", "the code") if used.is_attribute else ("imports", "the import")
    if is_named_model(used):
        verb, change = "names a model of", "the model"
    is_error = is_started(context, used.line) and not package.is_dependency and used.is_certain
    return Problem(
        "error" if is_error else "warning",
        f"{used.file} {verb} {first.name}, which {first.release} does not have{_further(others)}",
        (
            table_evidence("attribute" if used.is_attribute else "import", first.name, used.file),
            guide_evidence(context, package.name, package.reason, package.line),
            _evidence_of_release(first),
        ),
        f"Use {pin}, which has it."
        if pin
        else f"{reason}change {change}."
        if newer
        else f"{reason}Name the release of {package.name} that the code was written for, or change {change}.",
        install_step(pin) if pin else (),
        line=line,
    )


def _evidence_of_release(absent: AbsentImport) -> Evidence:
    """That a release lacks a name, as its wheel or a built-in table of names shows; the table has no day of it."""
    source = "the wheel on the package index" if absent.release.day else "the built-in tables of names"
    return table_evidence(str(absent.release), f"no {absent.name}", source)


def _release_with_all(
    context: GuideContext, state: EnvironmentState, absent: Sequence[AbsentImport], used: Sequence[CodeImport]
) -> tuple[str, str]:
    """The last release that has all used names, by the tables and the wheels; else a name that it lacks as well."""
    last, lacking = release_with_all(absent, used)
    version = last
    for _ in range(_MAX_OLDER):
        if not version or lacking:
            break
        without = _absent_from_wheel(context, state, absent[0].release.name, version, used)
        if not without:
            return version, ""
        older, lacking = release_with_all(without, used)
        version, lacking = older, lacking if older else without[0].name
    return last, lacking


def _absent_from_wheel(
    context: GuideContext, state: EnvironmentState, name: str, version: str, used: Sequence[CodeImport]
) -> list[AbsentImport]:
    """The used names that the wheel of another release of a package does not have; none if they are not known."""
    installed = installed_set(context, state, ())
    of_project = {each: found for each, found in installed.versions.items() if each.startswith(f"{name}-")}
    installed = installed._replace(versions={**of_project, name: version})
    found = context.index_facts.absent_imports(installed, used) if context.index_facts else ()
    return [each for each in found if each.release.name == name]


def _is_installable(context: GuideContext, state: EnvironmentState, name: str, version: str) -> bool:
    """Whether a release has a wheel for the Python of the environment; true if that is not known."""
    row = find_release(name, version) if version else None
    if version and row is None and context.index_facts:
        row = context.index_facts.published(name, version)
    return row is None or row.has_wheel(context.platform, state.python or context.trace.python)


def _absent(context: GuideContext, absent: AbsentImport, package: ResolvedPackage) -> Problem:
    line = line_of(context, absent.used.line, absent.used.name or absent.used.module)
    return Problem(
        "warning" if package.is_dependency else "error",
        f"{absent.release} does not have {absent.name}, which line {line} uses",
        (
            guide_evidence(context, "import", absent.name, line),
            guide_evidence(context, package.name, package.reason, package.line),
            _evidence_of_release(absent),
        ),
        f"Name the release of {package.name} that the code was written for, or change the import.",
        line=line,
    )
