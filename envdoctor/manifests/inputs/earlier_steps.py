"""The steps of a project's guide before the one that installs a manifest: the conda torch before the requirements."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from envdoctor.core.errors import BadInput
from envdoctor.manifests.actions import Install, UseImage
from envdoctor.manifests.files import READMES, Files, small_text
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.working_directory import repository_of

_KINDS = frozenset({"requirements", "pyproject", "setup.py", "setup.cfg"})
_GUIDES = (*READMES, "Dockerfile")
_PROJECT = re.compile(r"(?:\./?)?(?:\[[^\]]*\])?")
_FILE_OPTIONS = ("-r", "--requirement", "--requirements")


def earlier_steps(path: Path, kind: str, platforms: tuple[str, ...]) -> Guide | None:
    """The first guide of the project that installs a manifest, up to the step that does.

    None where a way through the guide installs it into an empty environment, and for files that no guide installs.
    """
    path = path.absolute()
    folder = path.parent
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


def installing_lines(guides: Sequence[Guide], own: Path, path: Path, kind: str) -> frozenset[int]:
    """The lines of the steps of a guide that install a manifest in its directory or below it."""
    if kind not in _KINDS or not path.is_relative_to(own.parent):
        return frozenset()
    relative = path.relative_to(own.parent).as_posix()
    steps = (each for guide in guides for each in guide.actions if isinstance(each, Install) and each.tool != "conda")
    return frozenset(step.line for step in steps if _installs(step, relative, kind))


def _before(guide: Guide, path: str, kind: str) -> Guide | None:
    """A way through a guide up to the step that installs a file; None without such a step."""
    for index, action in enumerate(guide.actions):
        if isinstance(action, Install) and action.tool != "conda" and _installs(action, path, kind):
            return guide._replace(actions=guide.actions[:index])
    return None


def _installs(action: Install, path: str, kind: str) -> bool:
    if kind == "requirements":
        return path in _files(action.command)
    folder = posixpath.dirname(path)
    urls = (each.url for each in action.requirements if each.url and "://" not in each.url)
    return any(posixpath.normpath(_PROJECT.sub("", url, count=1) or ".") == (folder or ".") for url in urls)


def _files(command: str) -> Iterator[str]:
    """The requirements files of a command."""
    try:
        words = shlex.split(command)
    except ValueError:  # an open quote
        words = command.split()
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word in _FILE_OPTIONS:
            yield posixpath.normpath(following)
        elif match := re.fullmatch(r"(?:-r|--requirements?=)(.+)", word):
            yield posixpath.normpath(match[1])


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
