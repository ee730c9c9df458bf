"""The programs of a project whose manifest or README starts none: those of the README, and its own scripts."""

from __future__ import annotations

import re

from envdoctor.core.paths import is_file
from envdoctor.manifests.block_actions import BlockReader
from envdoctor.manifests.checkout_code import Checkout, checkout_of
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.records import STANDARD_INPUT, Document
from envdoctor.manifests.markdown import parse_blocks
from envdoctor.manifests.own_names import own_names
from envdoctor.manifests.program_launches import Launch, Program

_KINDS = frozenset({"requirements", "conda", "pyproject", "setup.cfg", "setup.py", "pixi", "Pipfile", "script"})
_READMES = ("README.md", "readme.md", "Readme.md")
_OTHER_SCRIPT = re.compile(r"(?:setup|conftest|noxfile|tasks|test_\w+|\w+_test|__\w+__)\.py")
_MAX_SCRIPTS = 30


def with_programs(document: Document, name: str, files: Files) -> Document:
    """The document of a manifest, or of a guide without install commands, with the programs of its project."""
    is_project = document.kind in _KINDS or bool(document.origin)
    checkout = checkout_of(files) if is_project and name != STANDARD_INPUT else None
    started = [each.program for path in document.paths for each in path.launches]
    if checkout is None or not document.paths or any(each.is_python for each in started):
        return document
    scripts = _own_scripts(checkout, files)
    of_readme = () if document.origin else _of_readme(checkout, files)
    paths = tuple(
        path._replace(launches=(*(path.launches if document.origin else of_readme), *scripts), checkout=checkout)
        for path in document.paths
    )
    return document._replace(paths=paths)


def _of_readme(checkout: Checkout, files: Files) -> tuple[Launch, ...]:
    """The programs that the README next to the manifest, or that of the repository, starts."""
    folders = (files.folder or checkout.root, checkout.root)
    found = next(((each, name) for each in folders for name in _READMES if is_file(each / name)), None)
    if not found:
        return ()
    folder, name = found
    text = checkout.text(str((folder / name).absolute().relative_to(checkout.root)))
    own = Files(folder, *files.platforms).of_repository(checkout.root, own_names(checkout.root, text), is_readme=True)
    reader = BlockReader(parse_blocks(text), files=own)
    list(reader.actions())
    # A README can leave out the step that enters the directory of the manifest and its programs.
    return tuple(
        each._replace(command=f"{name}:{each.line}: {each.command}", line=0, folders=(*each.folders, folders[0]))
        for each in reader.launches
    )


def _own_scripts(checkout: Checkout, files: Files) -> tuple[Launch, ...]:
    """The scripts next to the manifest that are programs."""
    folder = files.folder
    if folder is None:
        return ()
    prefix = str(folder.absolute().relative_to(checkout.root))
    prefix = "" if prefix == "." else f"{prefix}/"
    try:
        names = sorted(each.name for each in folder.iterdir() if each.suffix == ".py")
    except OSError:
        return ()
    scripts = [
        name for name in names if not _OTHER_SCRIPT.fullmatch(name) and "__main__" in checkout.text(f"{prefix}{name}")
    ]
    return tuple(Launch(0, name, Program(script=name), (folder,)) for name in scripts[:_MAX_SCRIPTS])
