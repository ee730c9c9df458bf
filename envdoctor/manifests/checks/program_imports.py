"""Checks on the modules that the programs of a checkout import, and that no step installs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.images import is_bare_image
from envdoctor.knowledge.module_names import packages_of_module
from envdoctor.knowledge.releases import normalize_name, numpy2_releases
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import Clone, Install, LoadModules
from envdoctor.manifests.certain_packages import is_conda_base
from envdoctor.manifests.checkout_code import ReachedImport
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, table_evidence
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.checks.missing_packages import package_is_used_but_not_installed
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.install_texts import names_in_text
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.rules.registry import Problem, rule

IMPORT_SYSTEM = "https://docs.python.org/3/reference/import.html#searching"
_MAX_MODULES = 12  # that the index is requested for
_MAX_PART = 2  # more than a half of the modules of the programs are not those of another environment
# Installs what is not read, also where the text mentions it: `make install`, `pip install -e .[train]`.
_UNREAD_STEP = re.compile(
    r"\bmake\s+[\w-]*(?:install|setup|env|deps|build|dev)\b|\b(?:poetry|uv|pdm|rye|pixi) (?:sync|install)\b"
    r"|\benv (?:create|update)\b|\bdocker(?:-compose| compose)? (?:build|run|pull|up)\b"
    r"|\bpip3? install\s+[^\n`]{0,200}?(?:(?:-e|-r)\s*\S|\s[\"']?\.{1,2}(?:[\[/\"'\s]|$))"
    r"|\b(?:bash|sh|source)\s+\S*(?:install|setup|env)\S*\.sh\b"
)
# Modules of a package that need another package.
_NEEDED_BY = {"torch.utils.tensorboard": "tensorboard"}
# Packages with several modules; the modules of these are not all found by their wheels, which are not read.
_OF_PACKAGE = {
    "torchgen": "torch", "functorch": "torch", "caffe2": "torch", "pkg_resources": "setuptools",
    "_distutils_hack": "setuptools", "mpl_toolkits": "matplotlib", "pylab": "matplotlib",
}  # fmt: skip
# Top-level modules that several projects share.
_SHARED = frozenset({
    "google", "azure", "nvidia", "opentelemetry", "ruamel", "zope", "sphinxcontrib", "backports", "jaraco", "paste",
    "intel", "lightning_cloud", "mpl_toolkits", "pip", "setuptools", "wheel", "pkg_resources", "distutils",
})  # fmt: skip
_REPOSITORY = re.compile(r"/([\w.-]+?)(?:\.git|[@#]|$)")
# Names that projects give to modules of their own: a file of the checkout can be missing or be made by a step.
_GENERIC = re.compile(
    r"utils?|models?|data|datasets?_?\w*|configs?|common|lib|libs|tools?|src|core|modules?|layers?|losses|loss|ops|"
    r"options?|train\w*|test\w*|eval\w*|metrics?|nets?|networks?|helpers?|constants?|logger|main|\w*_?utils"
)


@rule(
    "RUN181", kind="guide", severity=("error", "warning", "info"), cause="dependency-pin-violated", url=IMPORT_SYSTEM,
    needs=("release",),
)  # fmt: skip
def program_imports_what_no_step_installs(context: GuideContext) -> Iterator[Problem]:
    """A program of the checkout imports a module that no package of the environment has.

    The programs are those that the commands start; for a manifest those of the README and the scripts next to it.
    Imports in functions, under conditions and in a `try` with a handler are left out.
    """
    index, checkout = context.index_facts, context.guide.checkout
    state, sources = _known_set(context), unread_sources(context)
    if index is None or checkout is None or state is None:
        return
    names = named_packages(context, state)
    reached: dict[str, ReachedImport] = {}
    for each in checkout.reached(context.guide.launches):
        reached.setdefault(_NEEDED_BY.get(each.statement.module, each.statement.top), each)
    missing = {top: each for top, each in reached.items() if not _is_given(top, names) and top not in _SHARED}
    reported = " ".join(each.message for each in package_is_used_but_not_installed(context))
    named = {top for top in missing if re.search(rf" needs {normalize_name(top)}\b", reported)}
    missing = {top: each for top, each in missing.items() if top not in named}
    if "torch" in missing or len(missing) * _MAX_PART > len(reached):
        return  # the environment has packages before the first step, or the programs run in another one
    is_guide = any(each.line for each in context.guide.launches)
    texts = checkout.guide_text if is_guide else f"{checkout.guide_text}\n{checkout.manifest_text}"
    missing = {top: each for top, each in missing.items() if not names_in_text(names_of_module(top), texts)}
    for top, each in list(missing.items())[:_MAX_MODULES]:
        if (package := _package(context, index, state, top, each)) is not None:
            yield _missing(context, top, each, package, sources)


def _known_set(context: GuideContext) -> EnvironmentState | None:
    """The environment in which programs run, if its packages from indexes are known."""
    if not context.environments or context.actions(LoadModules):
        return None
    state = context.environments[-1].state
    is_known = state.resolution == "solved" and not (state.image and not is_bare_image(state.image))
    for install in context.trace.installs:
        is_known = is_known and not install.action.unknown
        if install.action.tool == "conda":
            is_known = is_known and all(is_conda_base(each.name) for each in install.action.requirements)
    is_known = is_known and not any(map(_UNREAD_STEP.search, _mentions(context)))
    return state if is_known and state.packages else None


def _mentions(context: GuideContext) -> Iterator[str]:
    """The lines of a guide without those of its commands and steps, which are read."""
    commands = {number for block in context.guide.blocks for number, _ in block.lines}
    commands |= {each.line for each in context.actions(Install)}
    return (line for number, line in enumerate(context.guide.lines, 1) if number not in commands)


def unread_sources(context: GuideContext) -> tuple[str, ...]:
    """The repositories, URLs and folders whose requirements are not read: they can bring further packages."""
    actions = [install.action for install in context.trace.installs]
    found = [
        each.url for action in actions for each in action.requirements
        if each.url and not each.wheel and each.url not in action.read
    ]  # fmt: skip
    return tuple(dict.fromkeys(found))


def named_packages(context: GuideContext, state: EnvironmentState) -> set[str]:
    """The packages of the environment, those that a step names, and the repositories that a step clones."""
    names = {*state.packages, *state.requested}
    names |= {name for each in context.environments for name in each.state.packages}
    for install in context.trace.installs:
        for each in (*install.action.requirements, *install.action.unknown):
            names |= {each.name, *each.extras, *map(normalize_name, _REPOSITORY.findall(each.url))}
    for clone in context.actions(Clone):
        names.add(normalize_name(clone.url.rstrip("/").rpartition("/")[2].removesuffix(".git") or "x"))
    return names


def names_of_module(top: str) -> frozenset[str]:
    """The packages that can have a module, as far as their names show it."""
    known = packages_of_module(top)
    named = frozenset((_OF_PACKAGE.get(top, normalize_name(top)),))
    return named | known.packages if known else named


def _is_given(top: str, names: set[str]) -> bool:
    return not names.isdisjoint(names_of_module(top))


def _package(
    context: GuideContext, index: IndexFacts, state: EnvironmentState, top: str, each: ReachedImport
) -> str | None:
    """What installs a module that is missing; empty if that is not known, and None if it is not certainly missing."""
    known = packages_of_module(top)
    if known:
        return known.install
    if each.changes_path or _GENERIC.fullmatch(top):
        return None
    package = index.module_package(top)
    is_absent = bool(package) and top in index.absent_modules(installed_set(context, state, ()), [top])
    return package if is_absent else None


def _missing(context: GuideContext, top: str, each: ReachedImport, package: str, sources: tuple[str, ...]) -> Problem:
    launch = each.launch
    imported = " -> ".join((*each.chain[:1], *(("...",) if len(each.chain) > 3 else ()), *each.chain[1:][-2:]))
    module = each.statement.module if each.statement.module in _NEEDED_BY else top
    name = f", which needs {top}" if module != top else ""
    return Problem(
        "info" if sources else "error" if launch.line else "warning",
        f"{each.place} imports {module}{name}, and no step "
        + (f"names it: only {' or '.join(sources)} can bring it" if sources else "installs it"),
        (
            guide_evidence(context, "program", launch.command, launch.line)
            if launch.line
            else table_evidence("program", launch.command, "the checkout"),
            table_evidence("import", f"{each.place}: {module}", imported),
        ),
        f"Install {package}; old code can need an old release of it."
        if package
        else f"Find out which project has the module {top}, and install it.",
        install_step(package, *_limits(context)) if package and "://" not in package else (),
        line=launch.line or 1,
    )


def _limits(context: GuideContext) -> tuple[str, ...]:
    """What a further package must not change: the newest releases of many require NumPy 2."""
    torch = context.environments[-1].state.packages.get("torch")
    first = next((each.first for each in numpy2_releases() if each.package == "torch"), "")
    is_older = torch is not None and first and satisfies(public_part(torch.version), f"<{first}") is True
    return ("numpy<2",) if is_older else ()
