"""Repositories whose builds need torch or other modules of the environment: git_builds.toml."""

from __future__ import annotations

from functools import cache
from typing import Literal

from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies

MAIN = "main"


class GitBuild(TableRow, frozen=True, kw_only=True):
    """The build of a repository, or of one folder of it."""

    package: str
    repository: str
    folder: str = ""
    has_pyproject: bool  # without one, pip before 25.3 builds it without isolation
    modules: tuple[str, ...] = ("torch",)  # imported by `build_file`, and not among the build requirements
    build_file: str = "setup.py"
    commits: tuple[str, ...] = ()  # the only ones of which the row is true, with 7 digits; empty: any
    last: str = ""  # last release that has the folder; the main branch has none
    first: str = ""  # release from which the row is true; "main": only of the main branch
    requires_torch: str = ""  # release from which the build requirements name torch
    without_torch: str = ""  # specifier of later releases whose build requirements do not name it
    without_gpu: Literal["", "cpu", "stops"] = ""  # what the build does where torch finds no GPU
    variables: tuple[str, ...] = ()  # with one of which it compiles CUDA code without a GPU
    standard: int = 0  # of C++, in the flags of the main branch for extensions of torch; 0: none, or not known
    requires: tuple[str, ...] = ()  # the packages that it installs, of any commit; empty: not known

    def is_true_of(self, reference: str) -> bool:
        """Whether the row is true of a commit, tag or branch; empty: the main branch."""
        is_gone = bool(self.last) and reference in ("", MAIN, "master")
        return not is_gone and (not self.commits or reference[:7] in self.commits)

    @property
    def repository_name(self) -> str:
        """The normalized name of the repository without its owner."""
        return normalize_name(self.repository.rpartition("/")[2])

    def lacks_modules(self, release: str) -> bool | None:
        """Whether an isolated build lacks the modules: of a release, or `main`; None if that is not known."""
        if self.requires_torch:
            newest = self.compiles_for_newest_torch(release)
            return None if newest is None else not newest
        return _is_from(self.first, release) if self.first else True

    def compiles_for_newest_torch(self, release: str) -> bool | None:
        """Whether an isolated build installs the newest torch: of a release, or `main`; None if that is not known."""
        if self.without_torch and release != MAIN and satisfies(release, self.without_torch):
            return False
        return _is_from(self.requires_torch, release) if self.requires_torch else False


def _is_from(first: str, release: str) -> bool | None:
    """Whether a release is the first one or newer; an empty text is an unknown state of the repository."""
    if release == MAIN:
        return True
    return False if first == MAIN and release else satisfies(release, f">={first}") if release else None


@cache
def git_builds() -> tuple[GitBuild, ...]:
    """All rows."""
    return load_table("git_builds.toml", tuple[GitBuild, ...], "build")


def build_of_package(name: str) -> GitBuild | None:
    """The row of a package by its name; None without one."""
    return next((row for row in git_builds() if row.package == name), None)


def requirements_of_repository(repository: str) -> tuple[str, ...]:
    """The names of the packages that `owner/name` requires; empty if they are not known, as those of a fork."""
    rows = (row for row in git_builds() if row.repository.lower() == repository.lower() and not row.folder)
    return next((row.requires for row in rows), ())


def build_of_repository(repository: str, folder: str) -> GitBuild | None:
    """The row of `owner/name` and a folder of it; None without one. A fork has the row of its original."""
    name = normalize_name(repository.rpartition("/")[2])
    rows = [row for row in git_builds() if row.repository_name == name and row.folder == folder]
    return next((row for row in rows if row.repository.lower() == repository.lower()), rows[0] if rows else None)


def build_of_folder(path: str) -> GitBuild | None:
    """The row of a folder by its path: that of a clone, of a submodule, or of a copy in another repository."""
    parts = path.strip("/").split("/")
    last = normalize_name(parts[-1]) if parts[-1] else ""
    for row in git_builds():
        own = row.folder.split("/") if row.folder else []
        is_copy = len(own) > 1 and parts[-len(own) :] == own
        if last and (is_copy or row.package == last or (not own and row.repository_name == last)):
            return row
    return None
