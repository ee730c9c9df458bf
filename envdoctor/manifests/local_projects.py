"""The requirements of projects that a command installs from a folder: `./package`, `-e .[gpu]`."""

from __future__ import annotations

import posixpath
import re

from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Install
from envdoctor.manifests.files import Files
from envdoctor.manifests.pyproject import project_requirements
from envdoctor.manifests.setup_cfg import parse_setup_cfg
from envdoctor.manifests.setup_py import requirements_of_setup_py
from envdoctor.manifests.shell_records import is_known
from envdoctor.resolution.requirement import InstallRequirement

_FOLDER = re.compile(r"([^\[\]:@]+)(?:\[([^\[\]]*)\])?")
_PROJECT_FILES = ("/pyproject.toml", "/setup.cfg", "/setup.py")
_ARCHIVES = (".whl", ".zip", ".tar.gz")


def with_local_projects(install: Install, files: Files, folder: str = "") -> Install:
    """The installation with the requirements of the projects on disk. `folder` is the current directory."""
    if install.no_deps:
        return install
    found = [
        requirement._replace(line=each.line)
        for each in install.requirements
        for requirement in _requirements_of_project(each, files, folder)
    ]
    read = tuple(each.url for each in install.requirements if is_folder(each) and is_read(each, files))
    return install._replace(requirements=tuple(dict.fromkeys((*install.requirements, *found))), read=read)


def is_read(requirement: InstallRequirement, files: Files) -> bool:
    """Whether a requirement is a folder whose project was read from disk."""
    match = _FOLDER.fullmatch(requirement.url)
    tail = match and posixpath.normpath(match[1])
    read = {posixpath.dirname(path) for path in files.included if path.endswith(_PROJECT_FILES)}
    return bool(tail) and any(each == tail or each.endswith(f"/{tail}") for each in read)


def is_folder(requirement: InstallRequirement) -> bool:
    """Whether a requirement is a folder: `.`, `./package[gpu]`, `../other`."""
    return bool(_FOLDER.fullmatch(requirement.url)) and not requirement.url.endswith(_ARCHIVES)


def entered_folder(folder: str | None, path: str, files: Files) -> str | None:
    """The current directory after `cd PATH`, relative to the manifest; None if it is no directory of the project."""
    if re.search(r"\$\(dirname \W*(?:\$0|\$\{?BASH_SOURCE)", path):  # the directory of the script
        folder, path = "", path.rpartition(")")[2].strip("/\"'") or "."
    if folder is None or not path or path.startswith(("/", "~", "-")) or not is_known(path):
        return None
    entered = posixpath.normpath(posixpath.join(folder, path))
    return entered if files.has_folder(entered) else None


def _requirements_of_project(requirement: InstallRequirement, files: Files, folder: str) -> list[InstallRequirement]:
    match = _FOLDER.fullmatch(requirement.url)
    if not match or not is_folder(requirement):
        return []
    extras = [normalize_name(each.strip()) for each in (match[2] or "").split(",") if each.strip()]
    place = posixpath.normpath(posixpath.join(folder, match[1]))
    path = f"{place}/pyproject.toml"
    if lines := files.of_project(path, requirement.line):
        own = project_requirements(lines, files.within(path), extras)
        if own is not None:
            files.included.append(path)
            return own
    path = f"{place}/setup.cfg"
    lines = files.of_project(path, requirement.line)
    project = parse_setup_cfg(lines, files.within(path)) if lines else None
    if project is None:
        path = f"{place}/setup.py"
        lines = files.of_project(path, requirement.line)
        listed = requirements_of_setup_py(lines, files.within(path), extras) if lines else None
        files.included += [] if listed is None else [path]
        return listed or []
    files.included.append(path)
    return [*project.requirements, *(each for extra in extras for each in project.extras.get(extra, ()))]
