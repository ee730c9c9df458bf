"""Version ranges that releases require of other packages, from the METADATA that was read: bounds/<package>.toml.

requires/ contains every release of the packages whose pins envdoctor chooses. These tables contain the releases that
were read, of many more packages, and serve one question: does a list of packages violate a requirement?

A block names releases, newest first, and then what they require: `thinc>=8.3.4,<8.4.0 numpy<2;python_version<"3.12"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby

from envdoctor.knowledge.releases import Release
from envdoctor.knowledge.tables import FOLDER, read_table
from envdoctor.knowledge.versions import Key, is_local_build, is_prerelease, public_part, version_key

NOTHING = "-"  # in place of the requirements of a release without any


@cache
def bounds_of_release(package: str, version: str) -> tuple[str, ...]:
    """The requirements of a release; of one that is not in the table those that both of its neighbours have.

    Empty for a release that is older or newer than the table, for another pre-release and for a local build.
    """
    releases, key = _releases(package), version_key(public_part(version))
    if key is None or not releases or is_local_build(version):
        return ()
    if key in releases:
        return releases[key]
    if is_prerelease(version):
        return ()
    older = max((each for each in releases if each < key), default=None)
    newer = min((each for each in releases if each > key), default=None)
    if older is None or newer is None:
        return ()
    return tuple(line for line in releases[older] if line in releases[newer])


def has_bounds(package: str) -> bool:
    """Whether there is a table of the requirements of a package."""
    return package in _tables()


@cache
def _tables() -> frozenset[str]:
    return frozenset(path.stem for path in (FOLDER / "bounds").glob("*.toml"))


@cache
def _releases(package: str) -> dict[Key, tuple[str, ...]]:
    rows = parse_bounds(read_table(f"bounds/{package}.toml")["releases"]) if has_bounds(package) else ()
    return {key: requirements for version, requirements in rows if (key := version_key(version))}


def bounded_releases(package: str) -> dict[str, Release]:
    """The releases of a table by version, newest first, in the form of those of requires/."""
    table = read_table(f"bounds/{package}.toml")
    return {
        version: Release(versions=(version,), requires=requirements, source=table["source"], date=table["date"])
        for version, requirements in parse_bounds(table["releases"])
    }


def bounded_packages() -> tuple[str, ...]:
    """The packages of the tables."""
    return tuple(sorted(_tables()))


def parse_bounds(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the version and the requirements of each release of a table."""
    versions: list[str] = []
    for of_versions, words in groupby(text.split(), key=lambda word: word[0].isdigit()):
        if of_versions:
            versions = list(words)
            continue
        requirements = tuple(word for word in words if word != NOTHING)
        for version in versions:
            yield version, requirements
