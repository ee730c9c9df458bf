"""The releases of a package that a search tries in place of the one in a guide."""

from __future__ import annotations

from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import PublishedRelease, releases_in_range
from envdoctor.knowledge.python_limits import can_install
from envdoctor.knowledge.releases import is_before_requirements
from envdoctor.knowledge.versions import minor_of, satisfies
from envdoctor.resolution.resolver import ResolvedPackage, ResolverTarget

_MAX_CANDIDATES = 60


def at_version(package: ResolvedPackage, version: str, platform: str) -> ResolvedPackage:
    """Another release of a package, for torch with the CUDA version of its wheel on PyPI."""
    if package.name == "torch" and package.origin == "PyPI" and version != package.version and package.cuda != "cpu":
        return package._replace(version=version, cuda=cuda_on_pypi(version, platform))
    return package._replace(version=version)


def candidate_versions(name: str, specifier: str, current: str, target: ResolverTarget) -> list[str]:
    """The newest release of each minor version, because the rules distinguish minor versions.

    Releases contemporary with the guide come first. Later ones were never tested with its pins.
    """
    candidates: list[tuple[bool, str]] = []
    known_keys: set[tuple[str, bool]] = set()
    for row in releases_in_range(name, specifier, target.exclude_newer):
        is_later = row.date > target.period_end
        minor = minor_of(row.version)
        key = (row.version if minor in ("", "0.0") else minor, is_later)
        if not can_install(name, row.version, target.python) or _is_for_newer_pythons(row, target.python):
            continue
        if is_before_requirements(name, row.version):
            continue
        if key not in known_keys and satisfies(row.version, f"!={current}"):
            candidates.append((is_later, row.version))
        known_keys.add(key)
    candidates.sort(key=lambda candidate: candidate[0])
    return [version for _, version in candidates[:_MAX_CANDIDATES]]


def _is_for_newer_pythons(release: PublishedRelease, python: str) -> bool:
    """Whether a release has wheels, and all of them are for newer Pythons."""
    if not python or release.kind != "wheels" or release.has_wheel("", python):
        return False
    return all(satisfies(each.rstrip("+"), f">{python}") is True for each in release.pythons)
