"""Checks on commands that no package puts on PATH: entry points of the own project, and of installed releases."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import command_evidence, install_step, table_evidence
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.console_scripts import stated_scripts
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import clones_another
from envdoctor.manifests.markdown import SHELL_COMMANDS
from envdoctor.manifests.own_names import name_key, project_name
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

ENTRY_POINTS = "https://packaging.python.org/en/latest/specifications/entry-points/#use-for-scripts"
_MANIFESTS = ("pyproject.toml", "setup.cfg", "setup.py")
_PROGRAM = lazy_pattern(r"[A-Za-z][\w-]{2,}")
_INSTALLS_OWN = lazy_pattern(
    r"\binstall\s(?:.*\s)?(?:--editable=|-e)?\.(?:\[.*|/)?(?:\s|$)|\buv sync\b|\bpoetry install\b"
    r"|\bsetup\.py (?:install|develop)\b"
)
# Builds that can add programs which no manifest lists, and manifests of other languages.
_FURTHER = lazy_pattern(r"maturin|scikit-build|mesonpy|setuptools-rust|\bscripts\s*=\s*\[|dynamic\s*=[^\]]*scripts")
_OTHER_LANGUAGE = frozenset({"Cargo.toml", "CMakeLists.txt", "package.json", "go.mod", "Makefile.am", "Gemfile"})
_ENTRY_POINTS = lazy_pattern(r"entry[_-]points")
_LIKENESS = 0.8
_MIN_PREFIX = 4  # letters of a program and of its package


class _Project(NamedTuple):
    """The project of a checkout, and the programs that its manifests state."""

    name: str
    programs: tuple[str, ...]
    text: str  # of its manifests
    manifest: str


@rule("RUN264", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=ENTRY_POINTS)
def no_package_has_the_program(context: GuideContext) -> Iterator[Problem]:
    """A command starts a program that the installed release does not put on PATH: it is not found.

    The entry points of the project itself are read in its manifests, where a step installs it. Those of packages are
    read in the wheels on the index, and reported if another release has the program: `nnUNet_train` is one of
    nnunet 1.7.
    """
    commands: dict[str, Command] = {}
    for command in context.guide.commands:
        words = unwrap(command).words
        words = words[2:] if words[:2] == ("uv", "run") else words
        name = words[0] if words else ""
        is_plain = _PROGRAM.fullmatch(name) and "/" not in command.words[0]
        if is_plain and name not in SHELL_COMMANDS and f"{name}()" not in "".join(context.guide.lines):
            commands.setdefault(name, command)
    project = _installed_project(context)
    own = {name: each for name, each in commands.items() if project and _can_only_be_of(project, context, name, each)}
    if project:
        yield from _of_project(context, project, own)
    yield from _of_releases(context, {name: each for name, each in commands.items() if name not in own})


def _of_project(context: GuideContext, project: _Project, commands: dict[str, Command]) -> Iterator[Problem]:
    """The programs that can only be those of the own project, and that its manifests do not state."""
    what = (
        f"its programs are {', '.join(sorted(project.programs)[:6])}" if project.programs else "it states no program"
    )
    for name, command in commands.items():
        nearest = _nearest(name, project.programs)
        yield Problem(
            "error",
            f"`{command}` is not found: the project has no program {name}; {what}",
            (*command_evidence(context, command), table_evidence("entry points", what, project.manifest)),
            f"Use {nearest}."
            if nearest
            else "Start its module with python -m, or state the program in the manifest.",
            line=command.line,
        )


def _installed_project(context: GuideContext) -> _Project | None:
    """The project of the checkout, if a step installs it, and its manifests state all its programs."""
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or checkout.paths & _OTHER_LANGUAGE:
        return None
    names = [each for each in checkout.paths if each.rpartition("/")[2] in _MANIFESTS]
    if any("/" in each for each in names) or clones_another(context.guide, checkout):
        return None  # several projects
    texts = {name: checkout.text(name) for name in _MANIFESTS if name in names}
    text = "\n".join(texts.values())
    programs = tuple(stated_scripts(texts))
    is_installed = any(_INSTALLS_OWN.search(each.text) for each in context.guide.commands)
    is_complete = not _FURTHER.search(text) and (bool(programs) or not _ENTRY_POINTS.search(text))
    name = project_name(text)
    return _Project(name, programs, text, min(names)) if name and is_installed and is_complete else None


def _can_only_be_of(project: _Project, context: GuideContext, name: str, command: Command) -> bool:
    """Whether a program has a name of the project, or one that is like a program of it, and nothing else has it."""
    key, own = name_key(name), name_key(project.name)
    others = {name_key(each) for environment in context.environments for each in environment.state.packages} - {own}
    paths = context.guide.checkout.of_name(name) if context.guide.checkout else ()
    is_script = any(each != name for each in paths)  # the package of the project can have its name
    if name in project.programs or key in others or is_script:
        return False
    if key == own:
        return len(command.words) > 1
    is_named = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", project.text)
    is_like = re.match(rf"{re.escape(project.name)}[-_]", name) or _nearest(name, project.programs)
    return bool(is_like) and not is_named


def _nearest(name: str, programs: Sequence[str]) -> str:
    """The program that is like another one."""
    same = next((each for each in programs if name_key(each) == name_key(name)), "")
    alike = difflib.get_close_matches(name, programs, n=1, cutoff=_LIKENESS) if re.search("[-_]", name) else ()
    return same or next(iter(alike), "")


def _of_releases(context: GuideContext, commands: dict[str, Command]) -> Iterator[Problem]:
    """The programs that another release of an installed package has."""
    state = context.environments[-1].state if context.environments else None
    if context.index_facts is None or state is None or state.resolution not in ("solved", "partial") or state.image:
        return
    installed = installed_set(context, state, ())
    programs = {name: _packages(name, installed.versions) for name in commands}
    found = context.index_facts.absent_programs(installed, {name: each for name, each in programs.items() if each})
    for each in found:
        package, command = state.packages[each.release.name], commands[each.program]
        pin = f"{package.name}=={each.having}"
        yield Problem(
            "warning" if package.is_dependency else "error",
            f"`{command}` is not found: {each.release} has no program {each.program}; {package.name} {each.having} "
            "has it",
            (
                *command_evidence(context, command),
                table_evidence(str(each.release), f"no {each.program}", "entry_points.txt of its wheel"),
            ),
            f"Install {pin}, or use a program of {package.name} {each.release.version}.",
            install_step(pin),
            line=command.line,
        )


def _packages(program: str, packages: Iterable[str]) -> list[str]:
    """The packages of a set whose name begins like a program: nnunet for `nnUNet_train`."""
    key, first = name_key(program), re.split(r"[-_]", program.lower())[0]
    found = []
    for package in packages:
        other = name_key(package)
        is_start = len(other) >= _MIN_PREFIX and key.startswith(other) and key != other
        if is_start or (len(first) >= _MIN_PREFIX and first != key and other.startswith(first)):
            found.append(package)
    return found
