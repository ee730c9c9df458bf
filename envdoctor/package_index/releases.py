"""The releases of a package on an index, in order of version, with the time of their upload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from envdoctor.download.http_client import HttpClient
from envdoctor.knowledge.versions import Key, is_prerelease, satisfies, version_key
from envdoctor.package_index.simple_index import File, Project, read_project
from envdoctor.package_index.wheel_names import parse_wheel_name


class Release(NamedTuple):
    """One release with its files, under all spellings of its version."""

    package: str
    version: str
    files: tuple[File, ...]
    uploaded: str = ""  # time of the first upload, "2026-10-28T09:30:00Z"; empty: the index states none

    @property
    def day(self) -> str:
        """The day of the upload; empty if it is unknown."""
        return self.uploaded[:10]

    @property
    def is_yanked(self) -> bool:
        """Whether all files were withdrawn."""
        return all(file.yanked for file in self.files)

    def fits_python(self, version: str) -> bool:
        """Whether a file permits this version of Python."""
        return not self.files or any(
            not file.requires_python or satisfies(version, file.requires_python) is not False for file in self.files
        )

    @property
    def key(self) -> Key:
        """The sort key of the version."""
        key = version_key(self.version)
        assert key
        return key


def read_releases(client: HttpClient, index: str, name: str) -> tuple[Release, ...]:
    """Read a project's page, oldest version first. Raises RequestFailed."""
    return list_releases(read_project(client, index, name))


def list_releases(project: Project) -> tuple[Release, ...]:
    """The releases of a page, oldest version first. Versions outside of PEP 440 are left out."""
    files: dict[Key, list[File]] = {}
    for version, listed in project.releases.items():
        if key := version_key(version):
            files.setdefault(key, []).extend(listed)
    releases = []
    for _, listed in sorted(files.items()):
        times = [file.upload_time for file in listed if file.upload_time]
        releases.append(Release(project.name, listed[0].version, tuple(listed), min(times, default="")))
    return tuple(releases)


def releases_of_folders(folders: Iterable[str], names: Iterable[str]) -> dict[str, tuple[Release, ...]]:
    """The releases with wheels in folders, without dates, of those packages that have any."""
    projects = {name: Project(name, "", {}) for name in names}
    for path in (each for folder in folders for each in Path(folder).glob("*.whl")):
        wheel = parse_wheel_name(path.name)
        if wheel and (project := projects.get(wheel.name)):
            project.releases.setdefault(wheel.version, []).append(File(path.name, str(path), wheel.version, wheel))
    return {name: list_releases(project) for name, project in projects.items() if project.releases}


def find_release(releases: Sequence[Release], version: str) -> Release | None:
    """The release with a version in any spelling; None if the index does not list it."""
    key = version_key(version)
    return next((release for release in releases if release.key == key), None)


def releases_after(
    releases: Sequence[Release], version: str, *, until: str = "", prereleases: bool = False
) -> tuple[Release, ...]:
    """The releases above a version up to a day or time, oldest first, without those that were yanked.

    A release without a date counts as uploaded with the next newer release that has one. Without such a release it
    is left out if `until` is given.
    """
    key = version_key(version)
    last = f"{until}T24" if len(until) == 10 else until  # a day includes its hours
    found: list[Release] = []
    following = ""
    for release in reversed(releases):
        following = release.uploaded or following
        is_within = not until or bool(following and following <= last)
        is_wanted = prereleases or not is_prerelease(release.version)
        if is_within and is_wanted and not release.is_yanked and (key is None or release.key > key):
            found.append(release)
    return tuple(reversed(found))
