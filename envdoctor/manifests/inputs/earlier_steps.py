"""The steps before a file: those of a guide before it installs a manifest, or before it links to another page."""

from __future__ import annotations

import posixpath
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import Install, SelectEnvironment, UseImage
from envdoctor.manifests.files import READMES, Files, small_text
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.linked_pages import links_of
from envdoctor.manifests.inputs.local_images import inside, local_base
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.inputs.records import Document
from envdoctor.manifests.working_directory import repository_of

_KINDS = frozenset({"requirements", "pyproject", "setup.py", "setup.cfg"})
_GUIDES = (*READMES, "Dockerfile")
_PROJECT = lazy_pattern(r"(?:\./?)?(?:\[[^\]]*\])?")
_FILE_OPTIONS = {"requirements": ("-r", "--requirement", "--requirements"), "conda": ("-f", "--file")}


def earlier_steps(path: Path, document: Document, platforms: tuple[str, ...]) -> Guide | None:
    """The guide of the project that creates the environment of a file, up to the step that the file follows.

    Of a manifest it is the first guide that installs it; None where a way through that guide installs it into an
    empty environment, and for files that no guide installs. Of a page see `_before_page`; of a Dockerfile it is the
    one that builds its base image.
    """
    path = path.absolute()
    folder, kind = path.parent, document.kind
    if kind == "guide":
        return _before_page(path, document, platforms)
    if kind == "Dockerfile":
        return _of_base_image(path, document.paths[0], platforms)
    has_steps = False  # of a guide that installs other packages: a container is then another way
    for place in dict.fromkeys((folder, repository_of(folder).absolute())) if kind in _KINDS else ():
        for name in _GUIDES:
            is_skipped = place / name == path or (name == "Dockerfile" and has_steps)
            ways = () if is_skipped else _paths(place / name, platforms)
            has_steps |= any(isinstance(action, Install) for way in ways for action in way.actions)
            parts = [_before(each, path.relative_to(place).as_posix(), kind) for each in ways]
            found = [each for each in parts if each is not None]
            if found:
                fills = all(any(isinstance(action, Install | UseImage) for action in each.actions) for each in found)
                return found[0] if fills else None
    return None


def _of_base_image(path: Path, own: Guide, platforms: tuple[str, ...]) -> Guide | None:
    base = local_base(path, own, own.checkout) if own.checkout else None
    ways = _paths(base, platforms) if base else ()
    return inside(ways[0]) if ways else None


def _before_page(path: Path, document: Document, platforms: tuple[str, ...]) -> Guide | None:
    """The README up to its last link to a page, or the page with install steps to which it links before that.

    Of a README that installs nothing: such a page to which it links before its first program. None for a page that
    creates its own environment.
    """
    own = document.paths[0]
    if any(isinstance(each, SelectEnvironment | UseImage) for way in document.paths for each in way.actions):
        return None
    root = repository_of(path.parent).absolute()
    readme = next((root / name for name in READMES if (root / name).is_file()), None)
    if readme is None:
        return None
    if readme == path:
        starts = [each.line for each in own.launches if each.line]
        limit = 0 if any(isinstance(each, Install) for each in own.actions) else min(starts, default=0)
    else:
        limit = max((line for line, page in links_of(readme, root) if page == path.resolve()), default=0)
    pages = [page for line, page in links_of(readme, root) if line < limit and page != path.resolve()]
    before = _installs_before(readme, limit, platforms) if readme != path else None
    found = (_installs_before(each, sys.maxsize, platforms) for each in dict.fromkeys(pages))
    return before or next(filter(None, found), None)


def _installs_before(guide: Path, limit: int, platforms: tuple[str, ...]) -> Guide | None:
    """The first way through a guide up to a line, if each way installs packages before it."""
    ways = [
        each._replace(actions=tuple(step for step in each.actions if step.line < limit))
        for each in _paths(guide, platforms)
    ]
    is_complete = all(any(isinstance(step, Install | UseImage) for step in each.actions) for each in ways)
    return ways[0] if ways and is_complete else None


def installing_lines(guides: Sequence[Guide], own: Path, path: Path, kind: str) -> frozenset[int]:
    """The lines of the steps of a guide that install a manifest below its directory or in its project."""
    if kind not in (*_KINDS, "conda"):
        return frozenset()
    own, path = own.absolute(), path.absolute()
    places = [each for each in (own.parent, repository_of(own.parent).absolute()) if path.is_relative_to(each)]
    names = {path.relative_to(place).as_posix() for place in places}
    steps = [each for guide in guides for each in guide.actions if isinstance(each, Install | SelectEnvironment)]
    return frozenset(step.line for step in steps if any(_installs(step, name, kind) for name in names))


def _before(guide: Guide, path: str, kind: str) -> Guide | None:
    """A way through a guide up to the step that installs a file; None without such a step."""
    for index, action in enumerate(guide.actions):
        if isinstance(action, Install) and _installs(action, path, kind):
            return guide._replace(actions=guide.actions[:index])
    return None


def _installs(action: Install | SelectEnvironment, path: str, kind: str) -> bool:
    if kind == "conda" or isinstance(action, SelectEnvironment):  # which has the file of `conda env create`
        is_conda = kind == "conda" and isinstance(action, SelectEnvironment)
        return is_conda and path in _files(action.command, _FILE_OPTIONS["conda"])
    if action.tool == "conda":
        return False
    if kind == "requirements":
        return path in _files(action.command, _FILE_OPTIONS[kind])
    folder = posixpath.dirname(path)
    urls = (each.url for each in action.requirements if each.url and "://" not in each.url)
    return any(posixpath.normpath(_PROJECT.sub("", url, count=1) or ".") == (folder or ".") for url in urls)


def _files(command: str, options: Sequence[str]) -> Iterator[str]:
    """The files of requirements or of an environment that a command names."""
    try:
        words = shlex.split(command)
    except ValueError:  # an open quote
        words = command.split()
    for word, following in pairwise((*words, "")):
        if word in options:
            yield posixpath.normpath(following)
        elif option := next((each for each in options if word.startswith(each)), ""):
            yield posixpath.normpath(word.removeprefix(option).removeprefix("="))


def _paths(guide: Path, platforms: tuple[str, ...]) -> tuple[Guide, ...]:
    """The ways through a guide; none if it is absent or cannot be read."""
    text = small_text(guide)
    try:
        return _read(text, guide, platforms) if text else ()
    except (ValueError, BadInput):
        return ()


def forget_guides() -> None:
    """Read guides again: their files can have changed since the last command."""
    _read.cache_clear()


@lru_cache(maxsize=8)  # the manifests of a directory have the same guides
def _read(text: str, guide: Path, platforms: tuple[str, ...]) -> tuple[Guide, ...]:
    return read_input(text, guide.name, Files(guide.parent, *platforms), platforms[0]).paths
