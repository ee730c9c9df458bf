"""Releases on the package index with their upload date, and the Pythons and platforms of their wheels."""

from __future__ import annotations

from functools import cache
from itertools import takewhile

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import read_table
from envdoctor.knowledge.versions import dotted_numbers, is_prerelease, satisfies


class PublishedRelease(Record, frozen=True):
    """One release.

    `kind` is wheels, any (one wheel for all platforms), source (no wheel) or other (no wheel for Linux).
    """

    version: str
    date: str  # of the upload, 2025-09-13
    kind: str
    pythons: tuple[str, ...] = ()  # "3.12"; "3.8+" is a stable-ABI wheel; "3" any Python 3
    glibc: dict[str, str] = {}  # oldest glibc by platform
    yanked: bool = False  # installers choose it only for an exact pin

    def has_wheel(self, platform: str = "", python: str = "", glibc: str = "") -> bool:
        """Whether the release has a wheel for this platform, Python and glibc; "" is unknown and matches all."""
        if self.kind != "wheels":
            return self.kind == "any"
        if platform and platform not in self.glibc:
            return False
        if glibc and platform and dotted_numbers(glibc) < dotted_numbers(self.glibc[platform]):
            return False
        return not python or any(_supports_python(tag, python) for tag in self.pythons)

    def is_for_newer_pythons(self, python: str) -> bool:
        """Whether the release has wheels, and all of them are for newer Pythons."""
        if not python or self.kind != "wheels" or self.has_wheel("", python):
            return False
        return all(satisfies(each.rstrip("+"), f">{python}") is True for each in self.pythons)


def _supports_python(tag: str, python: str) -> bool:
    minor = dotted_numbers(python)[:2]
    if tag == "3":
        return True
    return minor >= dotted_numbers(tag[:-1]) if tag.endswith("+") else minor == dotted_numbers(tag)


@cache
def _rows() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_table("published.toml")["package"]}


@cache
def published_releases(package: str) -> tuple[PublishedRelease, ...]:
    """Releases of a package, newest version first; empty for packages that are not in the table."""
    releases: list[PublishedRelease] = []
    kind: str = "any"
    pythons: tuple[str, ...] = ()
    glibc: dict[str, str] = {}
    for line in _rows().get(package, {}).get("releases", "").splitlines():
        if line.startswith("["):
            kind, pythons, glibc = _parse_wheels(line.strip("[]"))
            continue
        for word in line.split():
            version, _, date = word.partition("=")
            releases.append(PublishedRelease(version, date.rstrip("!"), kind, pythons, glibc, date.endswith("!")))
    return tuple(releases)


def _parse_wheels(text: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """`3.9,3.10 x86_64:2.28 aarch64:2.28` as the kind wheels, their Pythons, and glibc by platform."""
    if text in ("any", "source", "other"):
        return text, (), {}
    pythons, *platforms = text.split()
    glibc = {name: version for name, _, version in (platform.partition(":") for platform in platforms)}
    return "wheels", tuple(pythons.split(",")), glibc


def published_packages() -> tuple[str, ...]:
    """The packages of the table."""
    return tuple(_rows())


def date_read(package: str) -> str:
    """The day on which a package's releases were read; empty for packages that are not in the table."""
    return _rows().get(package, {}).get("date", "")


@cache
def find_release(package: str, version: str) -> PublishedRelease | None:
    """A release by its version, `2.8` as well as `2.8.0`."""
    rows = published_releases(package)
    return next((row for row in rows if row.version == version or satisfies(row.version, f"=={version}")), None)


@cache
def releases_in_range(package: str, specifier: str, last_day: str = "9") -> tuple[PublishedRelease, ...]:
    """Releases up to a day that match a specifier, newest first.

    Pre-releases are included only if the specifier names one, yanked releases only if no other matches.
    """
    recent = [row for row in published_releases(package) if row.date <= last_day]
    rows = [row for row in recent if satisfies(row.version, specifier) is not False]
    prereleases = any(is_prerelease(part.lstrip("=<>~! ")) for part in specifier.split(","))
    rows = [row for row in rows if not row.yanked] or rows
    return tuple(row for row in rows if prereleases or not is_prerelease(row.version))


def is_newer_than_table(package: str, version: str) -> bool:
    """Whether a version is newer than all releases of the table, which may be older than it."""
    newest = _newest_final(package)
    return bool(newest) and bool(version) and satisfies(version, f">{newest}") is True


@cache
def _newest_final(package: str) -> str:
    versions = (row.version for row in published_releases(package))
    return next((version for version in versions if not is_prerelease(version)), "")


def nearest_release(package: str, version: str) -> PublishedRelease | None:
    """The release with the longest common prefix, preferably not newer than `version`; None without releases."""

    def common_parts(release: PublishedRelease) -> int:
        pairs = zip(release.version.split("."), version.split("."), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    releases = published_releases(package)
    usable = [release for release in releases if not (release.yanked or is_prerelease(release.version))]
    return max(
        usable or releases,
        key=lambda release: (
            common_parts(release),
            satisfies(release.version, f"<={version}") is True,
            dotted_numbers(release.version),
        ),
        default=None,
    )


def earliest_release(package: str) -> PublishedRelease | None:
    """The release of the earliest day in the table, which can have a higher version than later ones."""
    releases = published_releases(package)
    earliest = min((each.date for each in releases), default="")
    return next((each for each in releases if each.date == earliest), None)


def is_older_than_table(package: str, version: str) -> bool:
    """Whether a version can be older than the table, which does not have the first releases of a package.

    A lower version than that of the earliest day: pydantic 1.7.2, as 1.8 is of February 2021, and 1.6.2 of May 2021.
    """
    earliest = earliest_release(package)
    is_lower = earliest is not None and satisfies(version, f"<{earliest.version}") is True
    return is_lower and find_release(package, version) is None


def usable_release(package: str, version: str) -> PublishedRelease | None:
    """The release of this version. For a yanked one the next one, for one that does not exist the nearest one.

    None for a version that is newer than the table.
    """
    release = find_release(package, version)
    if release is None:
        return None if is_newer_than_table(package, version) else nearest_release(package, version)
    if not release.yanked:
        return release
    newer = (each for each in reversed(published_releases(package)) if satisfies(each.version, f">{version}"))
    later = (each for each in newer if not (each.yanked or is_prerelease(each.version)))
    return next(later, None) or nearest_release(package, version)
