"""The requirements of projects that a command installs from a folder: `./package`, `-e .[gpu]`."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.cxx_standards import standard_of_setup
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Install, OwnBuild
from envdoctor.manifests.files import Files
from envdoctor.manifests.gpu_code import gpu_code_of_setup
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.own_builds import missing_imports, text_of, torch_of_build
from envdoctor.manifests.pyproject import parse_pyproject, project_requirements
from envdoctor.manifests.setup_cfg import parse_setup_cfg
from envdoctor.manifests.setup_py import requirements_of_setup_py
from envdoctor.resolution.requirement import InstallRequirement

_FOLDER = lazy_pattern(r"([^\[\]:@]+)(?:\[([^\[\]]*)\])?")
_ARCHIVES = (".whl", ".zip", ".tar.gz")


def _next_to(path: str) -> str | None:
    """The directory of a requirement of a file next to it."""
    return None if "://" in path else posixpath.normpath(path)


def with_local_projects(install: Install, files: Files, place_of: Callable[[str], str | None] = _next_to) -> Install:
    """The installation with the requirements of the projects on disk.

    `place_of` returns the directory of the own project that a requirement names, relative to that of the files.
    """
    found: list[InstallRequirement] = []
    read: list[str] = []
    builds = tuple(_own_builds(install, files, place_of))
    for each in install.requirements:
        own = _requirements_of_project(each, files, place_of)
        if own is not None:
            read.append(each.url)
            found += [] if install.no_deps else [requirement._replace(line=each.line) for requirement in own]
    requirements = tuple(dict.fromkeys((*install.requirements, *found)))
    return install._replace(
        requirements=requirements,
        read=tuple(read),
        own_builds=builds,
        built_with_torch=install.built_with_torch.union(*_built_with_torch(install, files, place_of)),
    )


def _built_with_torch(
    install: Install, files: Files, place_of: Callable[[str], str | None]
) -> Iterator[frozenset[str]]:
    """The packages that `uv pip install .` builds with torch, by tool.uv of the directory where it runs."""
    for each in install.requirements if install.tool == "uv" else ():
        match, place = _FOLDER.fullmatch(each.url), _place(each, place_of)
        if place is not None and match and match[1] in (".", "./"):
            project = parse_pyproject(files.of_project(posixpath.join(place, "pyproject.toml"), each.line), files)
            yield project.built_with_torch if project else frozenset()


def _own_builds(install: Install, files: Files, place_of: Callable[[str], str | None]) -> Iterator[OwnBuild]:
    """The projects on disk whose setup.py imports what an isolated build lacks, or compiles for torch."""
    for each in install.requirements:
        place = _place(each, place_of)
        if place is not None:
            setup, pyproject = (
                files.of_project(posixpath.join(place, name), each.line) for name in ("setup.py", "pyproject.toml")
            )
            imports, text = missing_imports(setup, pyproject), text_of(setup)
            standard, gpu_code = standard_of_setup(text), gpu_code_of_setup(text)
            if imports or standard or gpu_code:
                torch = torch_of_build(text_of(pyproject))
                yield OwnBuild(each.url, imports, bool(pyproject), standard, torch, gpu_code)


def _place(requirement: InstallRequirement, place_of: Callable[[str], str | None]) -> str | None:
    """The directory of the own project that a requirement names."""
    match = _FOLDER.fullmatch(requirement.url)
    path = match[1] if match and is_folder(requirement) else requirement.url if "://" in requirement.url else ""
    return place_of(path) if path else None


def is_folder(requirement: InstallRequirement) -> bool:
    """Whether a requirement is a folder: `.`, `./package[gpu]`, `../other`."""
    return bool(_FOLDER.fullmatch(requirement.url)) and not requirement.url.endswith(_ARCHIVES)


def _requirements_of_project(
    requirement: InstallRequirement, files: Files, place_of: Callable[[str], str | None]
) -> list[InstallRequirement] | None:
    """The requirements of a project on disk; None if it is not there, or its build computes them."""
    place = _place(requirement, place_of)
    if place is None:
        return None
    match = _FOLDER.fullmatch(requirement.url)
    named = match[2] if match and match[2] else ",".join(requirement.extras)
    extras = [normalize_name(each.strip()) for each in named.split(",") if each.strip()]
    readers = {"pyproject.toml": _of_pyproject, "setup.cfg": _of_setup_cfg, "setup.py": requirements_of_setup_py}
    for name, read in readers.items():
        path = posixpath.join(place, name)
        lines = files.of_project(path, requirement.line)
        own = read(lines, files.within(path), extras) if lines else None
        if name == "setup.cfg" and not own and files.of_project(posixpath.join(place, "setup.py"), requirement.line):
            continue  # a setup.cfg of other tools: setup.py has the requirements
        if own is not None:
            files.included.append(path)
            return own
    return None


def _of_pyproject(lines: tuple[Line, ...], files: Files, extras: Sequence[str]) -> list[InstallRequirement] | None:
    return project_requirements(lines, files, extras)


def _of_setup_cfg(lines: tuple[Line, ...], files: Files, extras: Sequence[str]) -> list[InstallRequirement] | None:
    project = parse_setup_cfg(lines, files)
    return project and [*project.requirements, *(each for extra in extras for each in project.extras.get(extra, ()))]
