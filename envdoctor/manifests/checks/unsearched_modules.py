"""Checks on modules of a checkout that Python does not find, as it does not search their directory."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.module_names import packages_of_module
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.checkout_code import INSTALLED_FROM, Checkout
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, table_evidence
from envdoctor.manifests.checks.program_imports import named_packages, names_of_module
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.import_statements import ImportStatement
from envdoctor.manifests.install_texts import UNREAD_COMMANDS
from envdoctor.manifests.program_launches import Launch
from envdoctor.rules.registry import Problem, rule

PATH = "https://docs.python.org/3/library/sys_path_init.html"
# These start a script as `python` does: its directory is the first of sys.path, and the current one is not in it.
_LIKE_PYTHON = lazy_pattern(r"|torchrun|accelerate|accelerate\.commands\.launch|torch\.distributed\.(?:run|launch)")
_PROJECT_FILES = ("setup.py", "setup.cfg")
_OF_PROJECT = lazy_pattern(r"(?m)^\[(?:project|build-system|tool\.poetry|tool\.flit\.\w+)\]")
# What puts a directory on the path, or installs the project, in any text of the checkout.
_ADDED = lazy_pattern(
    r"PYTHONPATH|sources root|pycharm|conda[ -]develop|add2virtualenv"
    r"|(?:site-packages|sitecustomize|(?:echo|printf|pwd)\b[^\n]{0,160}>)[^\n]{0,80}\.pth\b",
    re.IGNORECASE,
)
_SEARCHED = lazy_pattern(
    rf"{_ADDED.pattern}|setup\.py\s+(?:develop|install)"
    rf"|\bpip3? install\s[^\n`]{{0,200}}?(?:-e\s|--editable|[\s\"']\.{{1,2}}(?:[\[/\"'\s]|$))"
    rf"|\b(?:poetry|uv|pdm|rye|pixi) (?:sync|install|run)\b|(?m:^\s*-e\s)|{UNREAD_COMMANDS}",
    re.IGNORECASE,
)
_TEXT = lazy_pattern(
    r"(?:.*/)?(?:[\w.-]*\.(?:md|rst|sh|env|slurm|sbatch|ipynb)|Makefile|Dockerfile[\w.-]*|[\w.-]*requirements[\w.-]*"
    r"|\.env\w*|[\w.-]+\.ya?ml)"
)
_RUN_SCRIPT = lazy_pattern(r"(?:\b(?:bash|sh|source)|(?<!\S)\.)\s+[\w./-]{0,200}?([\w-][\w.-]*\.sh)\b")
# A call that searches the root for directories with __init__.py.
_FINDS = lazy_pattern(r"packages\s*=\s*(?:setuptools\.)?find_packages\(\s*(?:exclude\s*=\s*[\[(][^\])]*[\])])?\s*\)")
_OTHER_LAYOUT = lazy_pattern(r"package_dir|py_modules|ext_modules|namespace")
_SETS_PATH = lazy_pattern(r"PYTHONPATH|sources root|pycharm|editable_mode|setup\.py\s+develop|\.pth\b", re.IGNORECASE)
_PATH_LIBRARY = lazy_pattern(r"\b(?:py)?rootutils\b|\bautoroot\b|\bchdir\b|__path__|\bimport_module\b|sys\.modules")
_MAX_TEXTS = 120
_MAX_FINDINGS = 3


class _Unsearched(NamedTuple):
    """An import of a module of the checkout, and the directory from which it would be found."""

    file: str
    statement: ImportStatement
    folder: str


@rule("RUN238", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=PATH)
def module_is_not_in_a_searched_directory(context: GuideContext) -> Iterator[Problem]:
    """A program imports a module of its checkout from a directory that Python does not search.

    `python tools/train.py` searches tools/ and not the current directory; a program that an installation puts on PATH
    searches the directory above its package. Left out if a file of the program changes `sys.path`, if a text of the
    checkout sets PYTHONPATH or installs the project, and if a package of the environment has the module. A warning
    if the project can be installed and no text does it; a shell script that no other text names is another setup.
    An installation of a setup.py whose find_packages() finds no directory with __init__.py makes no module available.
    Also reported: `python -m detect.train` for a package of one folder of the checkout that the guide does not enter.
    """
    checkout = context.guide.checkout
    launches = [each for each in context.guide.launches if each.line and not each.instruction]
    if checkout is None or not launches or not checkout.is_clone or not checkout.paths:
        return
    found: dict[tuple[str, str], Problem] = {}
    for launch in launches:
        if folder := _folder_of_module(context, checkout, launch):
            found.setdefault((folder, launch.program.module.partition(".")[0]), _of_module(context, launch, folder))
            continue
        unsearched = _first_of(context, checkout, launch)
        if unsearched and not _is_set_up(context, checkout, launch, unsearched):
            key = posixpath.dirname(unsearched.file), unsearched.statement.top
            found.setdefault(key, _problem(context, checkout, launch, unsearched))
    yield from list(found.values())[:_MAX_FINDINGS]


def _first_of(context: GuideContext, checkout: Checkout, launch: Launch) -> _Unsearched | None:
    """The first import of a program that fails, by the order of its files."""
    program = launch.program
    files = checkout.program_files(launch) if checkout.script(launch) and not program.is_notebook else ()
    is_script = bool(program.script) and _LIKE_PYTHON.fullmatch(program.launcher) is not None
    if not files or not (is_script or program.module):
        return None
    start = posixpath.dirname(files[0])
    above = ["", *accumulate(start.split("/")[:-1], posixpath.join)] if start else []
    if is_script:
        searched, others = [start], [*above, *(f"{each}/src".lstrip("/") for each in above)]
    else:
        searched, others = [*map(checkout.relative, launch.folders), *INSTALLED_FROM], [start] if start else []
    for file in files if others else ():
        source = checkout.source(file)
        if source.changes_path or source.added or _PATH_LIBRARY.search(checkout.text(file)):
            return None
    for file in files:
        for each in checkout.source(file).imports:
            is_run = not each.is_of_script or file == files[0]
            paths = [posixpath.join(folder, each.top) for folder in searched]
            if is_run and not each.level and not any(map(checkout.has_name, paths)):
                folder = next((folder for folder in others if _loads(checkout, folder, each)), None)
                if folder is not None and not _is_of_package(context, checkout, each.top):
                    return _Unsearched(file, each, folder)
    return None


def _folder_of_module(context: GuideContext, checkout: Checkout, launch: Launch) -> str:
    """The only folder with the package of `python -m`, where neither the guide enters it nor a step installs it."""
    top, _, rest = launch.program.module.partition(".")
    if not rest or launch.program.function or _is_project(checkout) or _is_of_package(context, checkout, top):
        return ""
    searched = dict.fromkeys((*map(checkout.relative, launch.folders), *INSTALLED_FROM))
    if any(checkout.has_name(posixpath.join(folder, top)) for folder in searched):
        return ""
    folders = [posixpath.dirname(each) for each in checkout.of_name(top)]
    folder = folders[0] if len(folders) == 1 else ""
    if not folder or not checkout.module_file((folder,), launch.program.module):
        return ""
    name = re.escape(posixpath.basename(folder))
    entered = re.compile(rf"(?i)\b(?:cd|pushd|workdir|directory|folder|inside|from|in)\b.*(?<![\w-]){name}(?![\w-])")
    texts = [each for each in sorted(checkout.paths) if _TEXT.fullmatch(each)][:_MAX_TEXTS]
    text = "\n".join((*context.guide.lines, *map(checkout.text, texts)))
    return "" if entered.search(text) or _SEARCHED.search(text) else folder


def _of_module(context: GuideContext, launch: Launch, folder: str) -> Problem:
    module = launch.program.module
    return Problem(
        "error",
        f"`python -m {module}` fails: Python does not search {folder}, which has {module.partition('.')[0]}",
        (
            guide_evidence(context, "program", launch.command, launch.line),
            table_evidence("package", posixpath.join(folder, module.partition(".")[0]), "the checkout"),
        ),
        f"Add {folder} to PYTHONPATH before this command.",
        guide_command(shell_command("export PYTHONPATH={}", folder)),
        line=launch.line,
    )


def _loads(checkout: Checkout, folder: str, each: ImportStatement) -> bool:
    modules = (each.module, f"{each.module}.{each.name}") if each.name else (each.module,)
    return any(checkout.module_file((folder,), module) for module in modules)


def _is_of_package(context: GuideContext, checkout: Checkout, top: str) -> bool:
    """Whether a package, or a module of Python, can have the name: an installed one, or a directory of the build."""
    if top in sys.stdlib_module_names or packages_of_module(top) or published_releases(normalize_name(top)):
        return True
    if _finds_no_package(checkout) and checkout.has_name(top):
        return False
    names = {each.name for step in context.trace.installs for each in step.action.requirements}
    if context.environments:
        names |= named_packages(context, context.environments[-1].state)
    builds = "\n".join(map(checkout.text, (*_PROJECT_FILES, "pyproject.toml")))
    return not names.isdisjoint(names_of_module(top)) or re.search(rf"[\"']{re.escape(top)}[\"']", builds) is not None


def _is_project(checkout: Checkout) -> bool:
    """Whether the project can be installed, which puts its packages on the path."""
    is_stated = _OF_PROJECT.search(checkout.text("pyproject.toml")) is not None
    return is_stated or any(name in checkout.paths for name in _PROJECT_FILES)


def _finds_no_package(checkout: Checkout) -> bool:
    """Whether setup.py installs the packages that find_packages() finds, and the root has none with __init__.py."""
    text = checkout.text("setup.py")
    is_only = not {"pyproject.toml", "setup.cfg"} & checkout.paths
    has_package = any(each.count("/") == 1 and each.endswith("/__init__.py") for each in checkout.paths)
    return is_only and bool(_FINDS.search(text)) and not _OTHER_LAYOUT.search(text) and not has_package


def _is_set_up(context: GuideContext, checkout: Checkout, launch: Launch, found: _Unsearched) -> bool:
    """Whether a step installs a folder, or a text of the checkout names what makes other directories searched.

    An installation of the project has no influence on a module of a package that is imported without its package,
    nor if it installs no module.
    """
    texts = [each for each in sorted(checkout.paths, key=lambda path: path.count("/")) if _TEXT.fullmatch(each)]
    texts = texts[:_MAX_TEXTS]
    text = "\n".join((*context.guide.lines, *map(checkout.text, texts)))
    if not launch.program.script:
        return "PYTHONPATH" in text
    if not found.folder and _finds_no_package(checkout):
        return _SETS_PATH.search(text) is not None
    has_url = any(each.url for step in context.trace.installs for each in step.action.requirements)
    if _is_project(checkout) and has_url:
        return True
    is_folder = any(
        each.url and "://" not in each.url and not each.wheel
        for step in context.trace.installs
        for each in step.action.requirements
    )
    others = _other_setups(context, checkout, texts)
    if is_folder or any(_ADDED.search(checkout.text(each)) for each in others):
        return True
    # The text of a script of the checkout is read itself.
    text = "\n".join((*context.guide.lines, *(checkout.text(each) for each in texts if each not in others)))
    return _SEARCHED.search(_RUN_SCRIPT.sub(lambda run: "" if checkout.of_name(run[1]) else run[0], text)) is not None


def _other_setups(context: GuideContext, checkout: Checkout, texts: Sequence[str]) -> set[str]:
    """The shell scripts that no other text names, where the guide installs packages without them."""
    scripts = (
        {each: posixpath.basename(each) for each in texts if each.endswith(".sh")} if context.trace.installs else {}
    )
    guide = "\n".join(context.guide.lines)
    return {
        script
        for script, name in scripts.items()
        if name not in guide and not any(name in checkout.text(each) for each in texts if each != script)
    }


def _problem(context: GuideContext, checkout: Checkout, launch: Launch, found: _Unsearched) -> Problem:
    place = f"{found.file}:{found.statement.line}"
    start = checkout.script(launch)
    folder = found.folder or "the root of the checkout"
    searched = "the directory of the script" if launch.program.script else "the directories of installed packages"
    current = checkout.relative(launch.folders[0]) if launch.folders else ""
    target = posixpath.relpath(found.folder or ".", current or ".")
    is_left_out = bool(launch.program.script) and _is_project(checkout) and not _finds_no_package(checkout)
    return Problem(
        "warning" if is_left_out else "error",
        f"{place} imports {found.statement.module} of {folder}, and Python searches {searched}"
        + (f", {posixpath.dirname(start)}" if launch.program.script else ""),
        (
            guide_evidence(context, "program", launch.command, launch.line),
            table_evidence("import", f"{place}: {found.statement.module}", f"{start} started as a program"),
        ),
        f"Add {folder} to PYTHONPATH before this command."
        + (
            " The installation has no package, as no directory has __init__.py."
            if _finds_no_package(checkout)
            else ""
        ),
        guide_command(shell_command("export PYTHONPATH={}", target)) if launch.program.script else (),
        line=launch.line,
    )
