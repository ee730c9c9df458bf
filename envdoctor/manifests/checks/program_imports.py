"""Checks on the modules that the programs of a checkout import, and that no step installs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.core.shell_commands import shell_command
from envdoctor.core.wording import join_words
from envdoctor.knowledge.module_names import OF_ONE_PACKAGE, is_generic, packages_of_module, shared_part
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import STATED_IN_TEXT, WITHOUT_COMMAND, Clone
from envdoctor.manifests.certain_packages import FROM_CONDA
from envdoctor.manifests.checkout_code import Checkout, ReachedImport
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, table_evidence
from envdoctor.manifests.checks.further_packages import installed_further
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.checks.missing_packages import package_is_used_but_not_installed
from envdoctor.manifests.checks.run_modules import uninstalled_modules
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.imports_of_guide import hosting_service, launches_of_code, named_programs
from envdoctor.manifests.install_texts import names_in_text, names_spelled_out
from envdoctor.manifests.program_launches import NOTEBOOK, Launch, Program
from envdoctor.manifests.search_paths import names_other_directories
from envdoctor.manifests.unread_sources import (
    UnreadSource,
    list_sources,
    named_otherwise,
    packages_of_repositories,
    unread_sources,
)
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.rules.registry import Problem, rule

IMPORT_SYSTEM = "https://docs.python.org/3/reference/import.html#searching"
_KERNEL = (UnreadSource(0, "the packages of the kernel of the notebook"),)
_MIN_WORD = 5  # letters of a word that is not in many names
_MAX_MODULES = 12  # that the index is requested for
_MAX_EVIDENCE = 3
_MAX_PART = 2  # more than a half of the modules of the programs are not those of another environment
# Modules of a package that need another package.
_NEEDED_BY = {"torch.utils.tensorboard": "tensorboard"}
# Packages with several modules; the modules of these are not all found by their wheels, which are not read.
_OF_PACKAGE = {
    "torchgen": "torch", "functorch": "torch", "caffe2": "torch", "pkg_resources": "setuptools",
    "_distutils_hack": "setuptools", "mpl_toolkits": "matplotlib", "pylab": "matplotlib",
}  # fmt: skip
_WITH_TORCH = FROM_CONDA | {"torch", "torchvision", "torchaudio"}
# Top-level modules that several projects share.
_SHARED = frozenset({
    "google", "azure", "nvidia", "opentelemetry", "ruamel", "zope", "sphinxcontrib", "backports", "jaraco", "paste",
    "intel", "lightning_cloud", "mpl_toolkits", "pip", "setuptools", "wheel", "pkg_resources", "distutils",
})  # fmt: skip
# Modules that only the machines of a service have.
_OF_SERVICES = {"google.colab": "Google Colab", "kaggle_secrets": "Kaggle", "kaggle_datasets": "Kaggle"}
# What ipykernel, which runs a notebook, requires.
_OF_KERNEL = frozenset({
    "IPython", "ipykernel", "traitlets", "jupyter_client", "jupyter_core", "matplotlib_inline", "psutil", "tornado",
    "zmq", "comm", "debugpy", "nest_asyncio", "packaging", "dateutil", "six", "decorator", "pygments", "platformdirs",
})  # fmt: skip
# What the page of PyTorch installs with torch: a text that only names torch leaves its reader to this page.
_OF_TORCH_PAGE = frozenset({"torchvision", "torchaudio", "pillow", "numpy"})  # with what torchvision requires
_OF_MANIFEST = lazy_pattern(
    r"\s(?:-r|--requirement)[\s=]|\benv\s+(?:create|update)\b|\bsync\b|\s(?:-e\s+)?\.(?:\s|\[|$)"
)
_REPOSITORY = lazy_pattern(r"/([\w.-]+?)(?:\.git|[@#]|$)")
# Names that projects give to modules of their own: a file of the checkout can be missing or be made by a step.


@rule(
    "RUN181", kind="guide", severity=("error", "warning", "unknown"), cause="dependency-pin-violated",
    url=IMPORT_SYSTEM, needs=("release",),
)  # fmt: skip
def program_imports_what_no_step_installs(context: GuideContext) -> Iterator[Problem]:
    """A program of the checkout, or `python -m`, loads a module that no package of the environment has.

    The programs are those that the commands start, and packages of the checkout that the code of a guide imports; for
    a manifest those of the README and the scripts next to it. A warning for programs that the text only names.
    Imports in functions, under conditions and in a `try` with a handler are left out. Unknown, once for the file, if
    an image, packages of conda, a repository or another part that is not read can bring the modules.
    """
    index, checkout = context.index_facts, context.guide.checkout
    state = context.environments[-1].state if context.environments else None
    if index is None or checkout is None or state is None or not state.packages:
        return
    given = named_packages(context, state)
    sources = unread_sources(context, state)
    is_read = state.resolution == "solved" and not any(each.is_open for each in sources)
    if is_read and len(context.environments) == 1:
        yield from uninstalled_modules(context, given, f"{checkout.guide_text}\n{checkout.manifest_text}")
    yield from _of_services(context, checkout)
    reached = _by_module(checkout.reached((*context.guide.launches, *launches_of_code(context))))
    unread = [each for each in sources if each.is_open]
    yield from _of_further_programs(context, index, state, (given, reached), unread)
    missing = dict(_missing_of(context, reached, given))
    if not missing or _is_for_further_packages(context, reached, given):
        return
    if "torch" in missing and not any("torch" in each.packages for each in sources):
        sources = (*sources, UnreadSource(0, "what contains torch, which no step installs", _WITH_TORCH))
    brought = frozenset[str]().union(*(each.packages for each in sources))
    open_sources = [each for each in sources if each.is_open]
    urls = " ".join(each.text for each in open_sources if "://" in each.text)
    missing = {top: each for top, each in missing.items() if not _is_given(top, brought) and not _is_of(top, urls)}
    is_most = len(missing) * _MAX_PART > len(reached)
    if is_most and not (is_read and _is_for_programs(context, reached, given)):
        return  # the programs run in another environment
    texts = (
        checkout.manifest_text if open_sources or is_most else ""
    )  # what is not read can be a manifest of the checkout
    missing = {top: each for top, each in missing.items() if not names_in_text(names_of_module(top), texts)}
    found = {
        top: package
        for top, each in list(missing.items())[:_MAX_MODULES]
        if (package := _package(context, index, state, top, each)) is not None
    }
    if found and open_sources:
        yield _question(context, missing, found, open_sources)
    elif is_most and found:
        yield _most(context, missing, found)
    else:
        yield from (_missing(context, top, missing[top], package) for top, package in found.items())


def _by_module(reached: Iterable[ReachedImport]) -> dict[str, ReachedImport]:
    """The first import of each module."""
    found: dict[str, ReachedImport] = {}
    for each in reached:
        module, name = each.statement.module, each.statement.name
        found.setdefault(_NEEDED_BY.get(module) or shared_part(module, name) or each.statement.top, each)
    return found


def _of_further_programs(
    context: GuideContext,
    index: IndexFacts,
    state: EnvironmentState,
    known: tuple[set[str], Collection[str]],
    sources: Sequence[UnreadSource],
) -> Iterator[Problem]:
    """The modules that only the notebook imports that installs packages, or programs that the text names.

    No file of the checkout states them. `known` are the packages of the steps, and the modules of the programs that
    commands start. Unknown if a source is not read: the kernel of a notebook can have packages of its own.
    """
    checkout, (given, started) = context.guide.checkout, known
    notebook = _own_notebook(context)
    programs = notebook or named_programs(context)
    reached = _by_module(checkout.reached(programs)) if checkout and programs else {}
    further = {top: each for top, each in reached.items() if top not in started}
    missing = dict(_missing_of(context, further, given | context.guide.of_project))
    if checkout is None or len(missing) * _MAX_PART > len(reached):  # of another environment
        return
    if notebook and "torch" in missing:  # the kernel has an environment for such code
        return
    text = checkout.manifest_text
    missing = {top: each for top, each in missing.items() if not names_in_text(names_of_module(top), text)}
    packages = {top: _package(context, index, state, top, each) for top, each in missing.items()}
    found = {top: package for top, package in packages.items() if package}
    sources = (*_KERNEL, *sources) if notebook else sources
    if found and sources:
        yield _question(context, missing, found, sources)
        return
    for top, package in found.items():
        yield replace(_missing(context, top, missing[top], package), status="warning")


def _own_notebook(context: GuideContext) -> tuple[Launch, ...]:
    """The notebook with install steps, as a program; none if a service hosts it."""
    name, checkout = context.guide.name, context.guide.checkout
    is_other = checkout is None or not name.endswith(NOTEBOOK) or hosting_service(context.guide.lines)
    if checkout is None or is_other or any(each.program.is_notebook for each in context.guide.launches):
        return ()
    script = checkout.relative(checkout.folder / posixpath.basename(name))
    return (Launch(0, name, Program(script=script), (checkout.root,)),)


def _is_for_further_packages(context: GuideContext, reached: Collection[str], names: set[str]) -> bool:
    """Whether a requirements file, such as `requirements_gpu.txt`, is for an environment that has the others.

    It lacks most modules of the programs, and other files of the checkout state them.
    """
    checkout = context.guide.checkout
    if checkout is None or any(each.line for each in context.guide.launches):
        return False
    lacking = [top for top in reached if not _is_given(top, names)]
    stated = [top for top in lacking if names_in_text(names_of_module(top), checkout.manifest_text)]
    return bool(stated) and len(lacking) * _MAX_PART > len(reached)


def _is_for_programs(context: GuideContext, reached: Collection[str], names: set[str]) -> bool:
    """Whether the steps certainly make the environment of the programs, although they lack most of its modules.

    They are commands for one environment, and install a module that the programs import, or a manifest.
    """
    commands = [each.action.command for each in context.trace.installs if each.action.command not in WITHOUT_COMMAND]
    is_one = len(context.environments) == 1 and any(each.line for each in context.guide.launches)
    has_module = any(_is_given(top, names) for top in reached)
    return is_one and bool(commands) and (has_module or any(map(_OF_MANIFEST.search, commands)))


def _of_services(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The first program, and no notebook, that imports what a hosting service has and no index."""
    own = hosting_service(context.guide.lines) if context.guide.name.endswith(NOTEBOOK) else ""
    for each in checkout.reached(context.guide.launches):
        launch, name = each.launch, f"{each.statement.module}.{each.statement.name}."
        module = next((module for module in _OF_SERVICES if name.startswith(f"{module}.")), "")
        service = _OF_SERVICES.get(module, "")
        is_own = bool(own) and own in service
        if module and not is_own and launch.line and not launch.program.is_notebook:
            is_stated = service.split()[-1].lower() in "\n".join(context.guide.lines).lower()
            yield Problem(
                "warning" if is_stated else "error",
                f"{each.place} imports {module}, which only {service} has",
                _evidence(context, module, each),
                f"Remove the import and what uses it, or run the program on {service}.",
                line=launch.line,
            )
            return


def _missing_of(
    context: GuideContext, reached: Mapping[str, ReachedImport], given: set[str]
) -> Iterator[tuple[str, ReachedImport]]:
    """The imports of modules that no step installs, and that no text of the checkout names as a requirement."""
    checkout = context.guide.checkout
    missing = {top: each for top, each in reached.items() if not _is_given(top, given) and top not in _SHARED}
    if checkout is None or not missing:
        return
    reported = " ".join(each.message for each in package_is_used_but_not_installed(context))
    is_guide = any(each.line for each in context.guide.launches)
    texts = checkout.guide_text if is_guide else f"{checkout.guide_text}\n{checkout.manifest_text}"
    brought = packages_of_repositories(context, texts)
    for top, each in missing.items():
        is_of_kernel = each.launch.program.is_notebook and top in _OF_KERNEL
        is_reported = is_of_kernel or re.search(rf" needs {normalize_name(top)}\b", reported)
        names = names_of_module(top)
        is_in_text = names_in_text(names, texts) or names_spelled_out(names, texts)
        is_named = top != "torch" and (is_in_text or _is_given(top, brought))
        if not is_reported and not is_named:
            yield top, each


def named_packages(context: GuideContext, state: EnvironmentState) -> set[str]:
    """The packages of the environment, those that a step names, and the repositories that a step clones."""
    names = {*state.packages, *state.requested}
    names |= {name for each in context.environments for name in each.state.packages}
    names |= {each.name for each in context.guide.left_out}
    for install in context.trace.installs:
        for each in (*install.action.requirements, *install.action.unknown):
            names |= {each.name, *each.extras, *map(normalize_name, _REPOSITORY.findall(each.url))}
        if install.action.command == STATED_IN_TEXT and "torch" in names:
            names |= _OF_TORCH_PAGE
    names |= {clone.project for clone in context.actions(Clone) if clone.url}
    return names | named_otherwise(context)


def names_of_module(top: str) -> frozenset[str]:
    """The packages that can have a module, as far as their names show it."""
    known = packages_of_module(top)
    named = frozenset((_OF_PACKAGE.get(top, normalize_name(top)),))
    return named | known.packages if known else named


def _is_given(top: str, names: Collection[str]) -> bool:
    return not names_of_module(top).isdisjoint(names)


def _is_of(top: str, urls: str) -> bool:
    """Whether the name of a repository has a word of a module: gradual-warmup-lr has warmup_scheduler."""
    words = {word.lower() for word in re.findall(rf"[A-Za-z]{{{_MIN_WORD},}}", top)}
    return not words.isdisjoint(re.findall(r"[a-z]+", urls.lower()))


def _package(
    context: GuideContext, index: IndexFacts, state: EnvironmentState, top: str, each: ReachedImport
) -> str | None:
    """What installs a module that is missing; empty if that is not known, and None if it is not certainly missing."""
    known = packages_of_module(top)
    if known:
        return known.install
    if each.changes_path or _sets_path(context, each):
        return None
    if top in OF_ONE_PACKAGE:
        return top
    if is_generic(top):
        return None
    package = index.module_package(top)
    is_absent = bool(package) and top in index.absent_modules(installed_set(context, state, ()), [top])
    return package if is_absent else None


def _sets_path(context: GuideContext, each: ReachedImport) -> bool:
    """Whether the command, the guide or the README of the checkout adds a directory that the checkout lacks."""
    checkout = context.guide.checkout
    readme = checkout.text("README.md") if checkout else ""
    text = "\n".join((each.launch.command, *context.guide.lines, readme))
    return checkout is not None and names_other_directories(text, checkout.paths, checkout.own_names())


def _missing(context: GuideContext, top: str, each: ReachedImport, package: str) -> Problem:
    launch = each.launch
    module = each.statement.module if each.statement.module in _NEEDED_BY else top
    name = f", which needs {top}" if module != top else ""
    is_notebook = launch.program.is_notebook and len(each.chain) == 1
    unknown = f"Find out which project has the module {top}, and install it."
    fix, remedies = installed_further(context, package) if package else (unknown, ())
    return Problem(
        "error" if launch.line else "warning",
        f"{each.place} imports {module}{name}, and no step installs it",
        _evidence(context, module, each),
        fix,
        remedies if "://" not in package else (),
        line=launch.line or (each.statement.line if is_notebook else last_step(context)),
    )


def _most(context: GuideContext, missing: Mapping[str, ReachedImport], found: Mapping[str, str]) -> Problem:
    """All missing modules, where the steps install few of those that the programs import."""
    top, *others = found
    first = missing[top]
    packages = [each for each in found.values() if each and "://" not in each]
    fix, remedies = installed_further(context, *packages) if packages else ("Install the projects with these.", ())
    nor = f" nor {join_words([f'{each} ({missing[each].place})' for each in others])}" if others else ""
    return Problem(
        "warning",
        f"{first.place} imports {top}, and no step installs it{nor}",
        _evidence(context, top, first),
        fix,
        remedies,
        line=first.launch.line or last_step(context),
    )


def last_step(context: GuideContext) -> int:
    """The line of the last installation, after which a program of another file runs."""
    return max((each.action.line for each in context.trace.installs), default=1)


def _evidence(context: GuideContext, module: str, each: ReachedImport) -> tuple[Evidence, Evidence]:
    """The command that starts the program, and the files through which it reaches the import."""
    launch = each.launch
    imported = " -> ".join((*each.chain[:1], *(("...",) if len(each.chain) > 3 else ()), *each.chain[1:][-2:]))
    program = (
        guide_evidence(context, "program", launch.command, launch.line)
        if launch.line
        else table_evidence("program", launch.command, "the checkout")
    )
    return program, table_evidence("import", f"{each.place}: {module}", imported)


def _question(
    context: GuideContext,
    missing: Mapping[str, ReachedImport],
    found: Mapping[str, str],
    sources: Sequence[UnreadSource],
) -> Problem:
    """All modules that what was read does not install, with the parts that can bring them and were not read."""
    first = missing[next(iter(found))]
    is_notebook = first.launch.program.is_notebook and len(first.chain) == 1
    more = len(missing) - len(found) if len(found) == _MAX_MODULES else 0
    places = [f"{top} ({missing[top].place})" for top in found]
    modules = f"{', '.join(places)} and {more} more modules" if more > 0 else join_words(places)
    count = len(context.environments[-1].state.packages)
    packages = [package or f"the project with the module {top}" for top, package in found.items()]
    return Problem(
        "unknown",
        f"{first.chain[0]} imports {modules}, which none of the {count} packages that were read has; "
        f"not read: {list_sources(sources)}",
        (
            *_evidence(context, next(iter(found)), first),
            *(table_evidence("not read", str(each), context.guide.name) for each in sources[:_MAX_EVIDENCE]),
        ),
        f"Run this in the finished environment. If it fails, install {join_words(packages)}.",
        guide_command(shell_command("python -c {}", f"import {', '.join(found)}")),
        line=first.launch.line or (is_notebook and first.statement.line) or sources[0].line or last_step(context),
    )
