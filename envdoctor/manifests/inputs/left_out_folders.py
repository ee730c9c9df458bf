"""A guide that installs from a file of a directory that it does not enter: the step `cd` is left out."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.files import Files, MissingFile
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.install_texts import is_manifest
from envdoctor.manifests.made_files import (
    can_come_from_elsewhere,
    clones_another,
    compiles_requirements,
    is_ignored,
)

_ENVIRONMENT = lazy_pattern(r"(?:conda|env)[\w.-]*\.ya?ml|Pipfile", re.IGNORECASE)


def only_files(guides: Sequence[Guide], files: Files) -> tuple[MissingFile, ...]:
    """The files that the root does not have, each with the only one of its name, which is in another directory.

    The directory is the same for all of them. None if the root has a manifest of its own, or the file can come from
    elsewhere.
    """
    checkout = guides[0].checkout
    if checkout is None or not checkout.paths or files.folder is None or files.folder.absolute() != checkout.root:
        return ()
    if any("/" not in path and (is_manifest(path) or _ENVIRONMENT.fullmatch(path)) for path in checkout.paths):
        return ()
    if any(clones_another(guide, checkout) or compiles_requirements(guide) for guide in guides):
        return ()
    found = tuple(each for missing in files.missing.values() for each in _elsewhere(missing, guides, checkout))
    return found if len({each.left_out_folder for each in found}) == 1 else ()


def _elsewhere(missing: MissingFile, guides: Sequence[Guide], checkout: Checkout) -> Iterator[MissingFile]:
    path = posixpath.normpath(missing.path)
    instead = checkout.only_path(path) if missing.is_absent and missing.in_repository else ""
    if not instead or len(checkout.of_name(posixpath.basename(path))) > 1 or is_ignored(checkout, path):
        return
    found = missing._replace(instead=instead)
    is_named = _names_folder(guides[0], found.left_out_folder)
    if not checkout.is_clone and not is_named:  # a directory can have several projects
        return
    if not any(can_come_from_elsewhere(guide, checkout, path, {missing.line}) for guide in guides):
        yield found


def _names_folder(guide: Guide, folder: str) -> bool:
    return any(re.search(rf"(?<![\w.-]){re.escape(folder)}(?![\w-])", line) for line in guide.lines)
