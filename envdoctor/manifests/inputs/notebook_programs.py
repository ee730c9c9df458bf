"""Notebooks that install nothing: programs of a checkout whose project file names the packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from envdoctor.core.errors import BadInput
from envdoctor.core.files import read_file_text
from envdoctor.core.paths import is_file
from envdoctor.manifests.actions import Action, Install, UseImage
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.files import Files
from envdoctor.manifests.imports_of_guide import hosting_service
from envdoctor.manifests.inputs.locked_projects import is_installed_with_pip
from envdoctor.manifests.inputs.records import STANDARD_INPUT, Document
from envdoctor.manifests.inputs.steps_of_locks import locked_step
from envdoctor.manifests.install_texts import UNREAD_COMMANDS
from envdoctor.manifests.program_launches import Launch, Program
from envdoctor.manifests.working_directory import repository_of

Reader = Callable[[str, str, Files], Document]
_PROJECT = ("pyproject.toml", "setup.py", "requirements.txt", "environment.yml", "environment.yaml")
_LISTS = (*_PROJECT[2:], *_PROJECT[:2])  # next to a notebook: its own packages first


def with_notebook_program(document: Document, name: str, files: Files, read: Reader) -> Document:
    """The document of a notebook without an install step, with the packages of its project.

    A lock of the project decides about the releases, unless pip installs it.
    A notebook with install steps gets the names of these packages alone: its kernel can have them. `read` reads the
    files that name them.
    """
    paths = document.paths
    is_notebook = document.kind == "notebook" and name != STANDARD_INPUT
    if not is_notebook or files.folder is None or not any(paths[0].python_blocks):
        return document
    folder, root = files.folder.absolute(), repository_of(files.folder).absolute()
    manifests = _manifests(folder, root)
    is_installed = any(isinstance(each, Install | UseImage) for each in paths[0].actions)
    is_installed = is_installed or any(re.search(UNREAD_COMMANDS, each.text) for each in paths[0].commands)
    if is_installed or len(paths) > 1 or hosting_service(paths[0].lines):
        read_manifests = (_read(each, files, read) for each in manifests)
        named = frozenset(name for each in read_manifests if each for name in _packages(each))
        return document._replace(paths=tuple(each._replace(of_project=named) for each in paths))
    found = next(iter(manifests), None)
    project = _read(found, files, read) if found else None
    if found is None or project is None:
        return document
    is_locked = found.name == "pyproject.toml" and not is_installed_with_pip(found.parent)
    lock = locked_step(found.parent, *files.platforms) if is_locked else None
    steps = (lock.install,) if lock else project.paths[0].actions
    checkout = Checkout(root, folder)
    program = Program(script=checkout.relative(folder / name))
    guide = paths[0]._replace(
        actions=(*paths[0].actions, *map(_at_start, steps)),
        launches=(Launch(0, name, program, (root,)),),
        checkout=checkout,
        permitted_python=project.paths[0].permitted_python,
    )
    manifest = found.with_name(lock.file) if lock else found
    origin = f"those of {checkout.relative(manifest)}, as no cell installs packages"
    return document._replace(
        paths=(guide,), guide=None, origin=origin, unread=tuple(dict.fromkeys((*document.unread, *project.unread)))
    )


def _read(path: Path, files: Files, read: Reader) -> Document | None:
    """The first environment of a manifest; None if it names no package."""
    try:
        text = read_file_text(path)
        document = read(text, path.name, Files(path.parent, *files.platforms))
    except (OSError, UnicodeError, BadInput):
        return None
    installs = (each for path in document.paths[:1] for each in path.actions if isinstance(each, Install))
    return document if any(each.requirements for each in installs) else None


def _packages(project: Document) -> Iterator[str]:
    """The names of the packages that a manifest installs."""
    for action in project.paths[0].actions:
        yield from (each.name for each in action.requirements) if isinstance(action, Install) else ()


def _at_start(action: Action) -> Action:
    """An action of another file, at the first line of the notebook."""
    if not isinstance(action, Install):
        return action
    return action._replace(line=1, requirements=tuple(each._replace(line=1) for each in action.requirements))


def _manifests(folder: Path, root: Path) -> list[Path]:
    """The files that name the packages, the most specific first: next to the notebook, or of the project."""
    places = [*((folder / name for name in _LISTS) if folder != root else ()), *(root / name for name in _PROJECT)]
    return [each for each in places if is_file(each)]
