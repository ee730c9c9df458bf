"""The repositories of git_builds.toml that a step builds: by their address, their clone, or their folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.git_builds import MAIN, GitBuild, build_of_folder, build_of_package, build_of_repository
from envdoctor.manifests.actions import Clone
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement

_ADDRESS = lazy_pattern(r"git\+\w+://(?:[^/@]+@)?[^/]+/([\w.-]+/[\w.-]+?)(?:\.git)?/?(?:@([^#]+))?(?:#(.*))?")
_CLONED = lazy_pattern(r"(?:\w+://(?:[^/@]+@)?[^/]+/|git@[^:]+:)([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_FOLDER = lazy_pattern(r"(?:file:)?(/|/?[\w.-][\w.@-]*(?:/[\w.@-]+)*/?)(?:\[[^\]]*\])?")
_SUBDIRECTORY = lazy_pattern(r"(?:^|&)subdirectory=([^&]+)")
_INSTRUCTION = lazy_pattern(r"\s*(?:RUN|WORKDIR|FROM)\b")  # each RUN starts in the directory of WORKDIR
_SHORT = 4  # `.`, `..` and `./`
_TAG = lazy_pattern(r"v?(\d+(?:\.\d+)+(?:\.?post\d+)?)")


class BuiltRepository(NamedTuple):
    """A repository that a step builds, with its release: a version, `main`, or empty if it is not known."""

    install: InstallStep
    requirement: InstallRequirement
    row: GitBuild
    release: str
    is_fork: bool = False  # of another owner than that of the row

    @property
    def has_pyproject(self) -> bool:
        """Whether the release certainly has a pyproject.toml; older ones than the main branch may have none."""
        return self.row.has_pyproject and self.release == MAIN

    @property
    def title(self) -> str:
        """The requirement, with the name of its package if the requirement is only a folder."""
        text = self.requirement.text
        return f"`{text}` ({self.row.package})" if len(text) < _SHORT else f"`{text}`"


def built_repositories(context: GuideContext) -> Iterator[BuiltRepository]:
    """The requirements of all steps that are built from a repository of the table."""
    for install in context.trace.installs:
        action = install.action
        for requirement in (*action.requirements, *action.unknown):
            if requirement.url and not requirement.wheel and action.tool != "conda":
                row, release, repository = _row_at(context, install, requirement)
                is_fork = row is not None and repository.lower() not in ("", row.repository.lower())
                if row and not (is_fork and not release):  # the branch of a fork can be built in another way
                    yield BuiltRepository(install, requirement, row, release, is_fork)


def repository_of_clone(url: str) -> str:
    """The repository, `owner/name`, of the URL of a clone; empty if the URL has another form."""
    address = _CLONED.fullmatch(url)
    return address[1] if address else ""


def release_of(reference: str) -> str:
    """The release of a reference: a version of its tag, `main`, or empty for a commit or another branch.

    The tag of some release, `v$VERSION`, is `v`.
    """
    if reference in ("", "main", "master", "HEAD"):
        return MAIN
    tag = _TAG.fullmatch(reference)
    return tag[1] if tag else "v" if reference.startswith("v$") else ""


def _row_at(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement
) -> tuple[GitBuild | None, str, str]:
    """The row of a requirement, its release, and the repository, `owner/name`, if it is known."""
    address = _ADDRESS.fullmatch(requirement.url)
    if address:
        folder = _SUBDIRECTORY.search(address[3] or "")
        row = build_of_repository(address[1], folder[1].strip("/") if folder else "")
        if row is None and folder is None and not requirement.name.startswith(("git", "https")):
            row = build_of_package(requirement.name)
            row = row if row and not row.folder else None
        row = row if row and row.is_true_of(address[2] or "") else None
        return row, release_of(address[2] or ""), address[1]
    path = _FOLDER.fullmatch(requirement.url)
    if not path or requirement.url in install.action.read:
        return None, "", ""
    place = posixpath.normpath(posixpath.join(_directory(context, install), path[1]))
    row = build_of_folder(place)
    clone = _clone_of(context, install, place)
    is_true = row is not None and (row.is_true_of(clone.reference) if clone else not row.commits)
    row = row if is_true else None
    owner = repository_of_clone(clone.url) if clone and row and not row.folder else ""
    return row, release_of(clone.reference) if clone else "", owner


def _directory(context: GuideContext, install: InstallStep) -> str:
    """The directory of the last `cd` before a step; `.` without one."""
    commands = (each for each in context.guide.commands if each.line <= install.action.line)
    entered = [each for each in commands if each.words[:1] == ("cd",) and len(each.words) > 1]
    if not entered:
        return "."
    between = context.guide.lines[entered[-1].line : install.action.line]
    is_left = install.before.in_dockerfile and any(map(_INSTRUCTION.match, between))
    return "." if is_left else entered[-1].words[1]


def _clone_of(context: GuideContext, install: InstallStep, place: str) -> Clone | None:
    """The clone of a folder, with the reference that it checks out."""
    found: Clone | None = None
    for clone in context.actions(Clone):
        address = _CLONED.fullmatch(clone.url)
        if clone.line > install.action.line:
            break
        if address:
            is_place = address[1].rpartition("/")[2] in place.split("/") or clone.command.endswith(f" {place}")
            found = clone if is_place else found
        elif found and not clone.url:
            found = found._replace(reference=clone.reference)
    return found
