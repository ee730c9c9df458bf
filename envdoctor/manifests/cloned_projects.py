"""Projects that a guide clones and installs from their directory, at the tag of a release or at the main branch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Clone, Install
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.own_names import name_key
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import InstallRequirement

_CURRENT = lazy_pattern(r"\.{1,2}/?(\[[^\]]*\])?$")
_TAG = lazy_pattern(r"v?(\d+(?:\.\d+)+\S*)")


CLONE_ORIGIN = "a repository"  # origin of packages that are installed from the directory of a clone


def with_cloned_releases(action: Install, guide: Guide, index: IndexFacts | None = None) -> Install:
    """The step with the releases that its directories contain: `-e .` after `git clone -b v0.12.0 .../vllm; cd vllm`.

    They have the requirements of the releases on the index. With `index`, the newest release stands for the main
    branch of a repository that publishes it.
    """
    requirements = tuple(
        _released(requirement, action, guide, index) or requirement for requirement in action.requirements
    )
    return action._replace(requirements=requirements)


def _released(
    requirement: InstallRequirement, action: Install, guide: Guide, index: IndexFacts | None
) -> InstallRequirement | None:
    if not requirement.url or "://" in requirement.url or requirement.wheel or requirement.url in action.read:
        return None
    current = _CURRENT.match(requirement.url)
    directory = _working_directory(guide, action.line) if current else requirement.url.partition("[")[0]
    name = normalize_name(directory.rstrip("/").rpartition("/")[2] or "x")
    references = list(_references(guide, name, action.line))
    tag = next((match[1] for each in references if (match := _TAG.fullmatch(each))), "")
    if tag and find_release(name, tag):
        version = tag
    elif references and not any(references) and index:
        version = _newest_release(name, guide, action.line, index)
    else:
        version = ""
    if not version:
        return None
    extras = re.search(r"\[([^\]]*)\]$", requirement.url)
    named = tuple(normalize_name(part) for part in (extras[1] if extras else "").split(",") if part.strip())
    return InstallRequirement(name, f"=={version}", named, text=requirement.text, line=requirement.line)


def folder_of_clone(guide: Guide, action: Install, requirement: InstallRequirement) -> str:
    """The folder of a clone in which a step installs `.`; empty for another folder, such as that of the checkout."""
    if not _CURRENT.match(requirement.url) or requirement.url in action.read:
        return ""
    folder = _working_directory(guide, action.line)
    name = normalize_name(folder.rstrip("/").rpartition("/")[2] or "x")
    is_own = guide.checkout is not None and name_key(name) in guide.checkout.own_names("\n".join(guide.lines))
    return folder if not is_own and _is_cloned(guide, name, action.line) else ""


def _is_cloned(guide: Guide, name: str, line: int) -> bool:
    clones = (each for each in guide.actions if isinstance(each, Clone) and each.url and each.line <= line)
    return any(each.project == name for each in clones)


def _newest_release(name: str, guide: Guide, line: int, index: IndexFacts) -> str:
    """The newest release of the repository that was cloned last before a step; empty if it publishes none."""
    clones = [each for each in guide.actions if isinstance(each, Clone) and each.url and each.line <= line]
    url = next((each.url for each in reversed(clones) if each.project == name), "")
    newest = index.newest_release(name) if url else None
    return newest.version if newest and index.is_published_from(name, url) else ""


def _working_directory(guide: Guide, line: int) -> str:
    """The directory of the last `cd` before a step; empty without one."""
    words = (command.words for command in guide.commands if command.line <= line and command.words[:1] == ("cd",))
    return next((each[1] for each in reversed(list(words)) if len(each) > 1), "")


def _references(guide: Guide, name: str, line: int) -> Iterator[str]:
    """The references of a repository that are checked out before a step, the last one first."""
    found: list[str] = []
    is_current = False
    for action in guide.actions:
        if isinstance(action, Clone) and action.line <= line:
            if action.url:
                is_current = action.project == name
                found = [] if is_current else found
            if is_current:
                found.append(action.reference)
    yield from reversed(found)
