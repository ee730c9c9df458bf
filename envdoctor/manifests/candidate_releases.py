"""The releases of a package that a search tries in place of the one in a guide."""

from __future__ import annotations

from datetime import date, timedelta

from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import find_release, published_releases, releases_in_range
from envdoctor.knowledge.python_limits import supports_python
from envdoctor.knowledge.releases import is_before_requirements
from envdoctor.knowledge.versions import minor_of, satisfies
from envdoctor.resolution.resolver import ResolvedPackage, ResolverTarget

_MAX_CANDIDATES = 60
_DAYS_OF_OLDER = 90


def at_version(package: ResolvedPackage, version: str, platform: str) -> ResolvedPackage:
    """Another release of a package, for torch with the CUDA version of its wheel on PyPI."""
    if package.name == "torch" and package.origin == "PyPI" and version != package.version and package.cuda != "cpu":
        return package._replace(version=version, cuda=cuda_on_pypi(version, platform))
    return package._replace(version=version)


def candidate_versions(name: str, specifier: str, current: str, target: ResolverTarget) -> list[str]:
    """The newest release of each minor version, because the rules distinguish minor versions.

    Releases contemporary with the guide come first. Later ones were never tested with its pins. Those of long before
    the current one come last, also if their series still has new ones: a rule that has no limit for them does not
    prove that they fit.
    """
    first_day = _first_day(name, current, target.period_end)
    first_of_series = {_series(row.version): row.date for row in published_releases(name)}  # the oldest is the last
    candidates: list[tuple[bool, bool, str]] = []
    known_keys: set[tuple[str, bool]] = set()
    for row in releases_in_range(name, specifier, target.exclude_newer):
        is_later = row.date > target.period_end
        series = _series(row.version)
        key = (series, is_later)
        if not supports_python(name, row, target.python):
            continue
        if is_before_requirements(name, row.version):
            continue
        if key not in known_keys and satisfies(row.version, f"!={current}"):
            candidates.append((first_of_series[series] < first_day, is_later, row.version))
        known_keys.add(key)
    candidates.sort(key=lambda candidate: candidate[:2])
    return [version for _, _, version in candidates[:_MAX_CANDIDATES]]


def _series(version: str) -> str:
    """The minor version; of releases such as 0.0.35 the version."""
    minor = minor_of(version)
    return version if minor in ("", "0.0") else minor


def _first_day(name: str, current: str, period_end: str) -> str:
    """The first day of the releases that are not much older than the current one; empty if that is a later one.

    A guide that pins no release gets the newest one, of which older ones can be the contemporary ones.
    """
    release = find_release(name, current)
    if release is None or release.date > period_end:
        return ""
    return (date.fromisoformat(release.date) - timedelta(days=_DAYS_OF_OLDER)).isoformat()
