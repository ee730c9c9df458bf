"""The packages that `uv sync`, `poetry install` and `pdm install` take from the lock or the project of a guide.

They are the step of a guide without other install commands. How a lock is built is a matter of the project, whose
own audit judges it: this step is for the programs that the guide starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.core.decoding import parse_toml
from envdoctor.core.errors import BadInput
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.manifests.actions import Install
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs import locks
from envdoctor.manifests.inputs.records import PackageSet
from envdoctor.manifests.options import parse_options
from envdoctor.manifests.pyproject import parse_pyproject
from envdoctor.manifests.stated_python import python_of_file
from envdoctor.resolution.requirement import InstallRequirement

_NEWEST_USUAL = (3, 12)
_PYPI = ("", "https://pypi.org/simple", "https://pypi.org/simple/")
_Sets = Callable[[dict[str, Any], str, str], tuple[PackageSet, ...]]


class _Tool(NamedTuple):
    lock: str
    sets: _Sets


_UV = _Tool("uv.lock", lambda data, text, platform: locks.UvLock(data, text).sets(platform))
_POETRY = _Tool("poetry.lock", locks.poetry_sets)
_PDM = _Tool("pdm.lock", locks.pdm_sets)
_TOOLS = {
    ("uv", "sync"): _UV, ("poetry", "install"): _POETRY, ("poetry", "sync"): _POETRY, ("pdm", "install"): _PDM,
    ("pdm", "sync"): _PDM,
}  # fmt: skip


class LockStep(NamedTuple):
    """The step, the file that it is read from, and the Pythons that it is for."""

    install: Install
    file: str
    python: str


def is_sync(words: Sequence[str]) -> bool:
    """Whether a command installs what the lock of a project has."""
    return tuple(words[:2]) in _TOOLS


def step_of_lock(words: Sequence[str], line: int, files: Files) -> LockStep | None:
    """The step of a command; None if the directory has neither a lock nor a project with requirements."""
    tool = _TOOLS[words[0], words[1]]
    text = "\n".join(row for _, row in files.of_project(tool.lock, line))
    lines = files.of_project("pyproject.toml", line)
    project = parse_pyproject(lines, files) if lines else None
    python = _python(words, files)
    if chosen := _chosen(_sets(tool, text, files.platform or "x86_64"), python):
        pins = tuple(_requirements(chosen, line))
        indexes = tuple(dict.fromkeys(each.source for each in chosen.packages if each.origin == "PyPI"))
        install = Install(
            line, f"{' '.join(words)} (sync with {tool.lock})", "uv",
            tuple(each for each in pins if each.specifier),
            extra_indexes=tuple(each for each in indexes if each not in _PYPI),
            overrides=tuple(each for each in pins if each.name in chosen.overridden),
            no_deps=True, no_build_isolation=True,
            built_with_torch=project.built_with_torch if project else frozenset(),
            unknown=tuple(each for each in pins if not each.specifier),
        )  # fmt: skip
        return LockStep(install, tool.lock, f">={chosen.python}" if chosen.python else "")
    variant = next((name for name, found in project.variants.items() if found), None) if project else None
    if project is None or variant is None:
        return None
    install = project.install(variant, line, " ".join(words))
    requirements = tuple(each._replace(line=line) for each in install.requirements)
    install = install._replace(requirements=requirements, no_build_isolation=True)
    return LockStep(install, "pyproject.toml", project.python)


def locked_step(folder: Path, *platforms: str) -> LockStep | None:
    """The step of the lock in a directory; None without one."""
    for words in (("uv", "sync"), ("poetry", "install"), ("pdm", "sync")):
        step = step_of_lock(words, 1, Files(folder, *platforms))
        if step and step.file.endswith(".lock"):
            return step
    return None


def _sets(tool: _Tool, text: str, platform: str) -> tuple[PackageSet, ...]:
    if not text:
        return ()
    try:
        return tool.sets(parse_toml(text, source=tool.lock, expected="", hint=""), text, platform)
    except (BadInput, ValueError):
        return ()


def _python(words: Sequence[str], files: Files) -> str:
    """The Python that a command names, else that of the file .python-version; empty without one."""
    stated = parse_options(tuple(words)).last("--python", "-p")
    return python_of_file(files, stated)


def _chosen(sets: Sequence[PackageSet], python: str) -> PackageSet | None:
    """The set for a Python; without one, that for the newest usual Python."""
    newest = dotted_numbers(python) or _NEWEST_USUAL
    usual = [each for each in sets if each.packages and dotted_numbers(each.python)[:2] <= newest]
    return max(usual, key=lambda each: dotted_numbers(each.python), default=next(iter(sets), None))


def _requirements(chosen: PackageSet, line: int) -> Iterator[InstallRequirement]:
    for each in chosen.packages:
        specifier = f"=={each.version}" if each.origin == "PyPI" and each.version else ""
        yield InstallRequirement(each.name, specifier, text=f"{each.name}{specifier}", line=line)
