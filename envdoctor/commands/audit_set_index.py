"""What the package index shows about a solved set, where the built-in tables have no releases."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement

from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import newest_patch, public_part, satisfies
from envdoctor.locking.solved_set import SetProblems, SolvedSet
from envdoctor.manifests.set_repairs import oldest_permitted_day
from envdoctor.resolution.index_facts import IndexedRelease, IndexFacts

MAX_PACKAGES = 12  # without a table


def judge_by_index(solved: SolvedSet, index: IndexFacts) -> SetProblems:
    """The problems of the packages of a set for which the file leaves the release open."""
    warnings, pins = [], []
    for release, later in _outdated(solved, index):
        warnings.append(f"{release} is much older than the other packages, which exclude newer releases")
        pins.append(f"{release.name}>={later.version}")
    return SetProblems((), tuple(pins), tuple(warnings))


def _outdated(solved: SolvedSet, index: IndexFacts) -> Iterator[tuple[IndexedRelease, IndexedRelease]]:
    """The releases to which uv went back, each with the first one that is new enough.

    Old releases state fewer limits, and their dependencies have wheels.
    """
    day = oldest_permitted_day(solved.corrected)
    for name in [each for each in open_packages(solved) if not published_releases(each)][:MAX_PACKAGES]:
        release = index.release(name, public_part(solved.versions[name]))
        if not release or not release.day or release.day >= day:
            continue
        newer = (
            each for each in index.usable_releases(name) if each.day >= day and _fits(each, solved.corrected.python)
        )
        if later := next(newer, None):
            yield release, later


def _fits(release: IndexedRelease, python: str) -> bool:
    """Whether a release supports a Python: an old one can exclude all newer releases."""
    is_excluded = (
        python and release.requires_python and satisfies(newest_patch(python), release.requires_python) is False
    )
    return release.has_wheel and not is_excluded


def open_packages(solved: SolvedSet) -> list[str]:
    """The packages of a set whose version is not that of the file."""
    named = dict.fromkeys(normalize_name(Requirement(text).name) for text in solved.corrected.requirements)
    return [name for name in named if name in free_packages(solved)]


def free_packages(solved: SolvedSet) -> frozenset[str]:
    """The same with the dependencies that the file does not name."""
    corrected = solved.corrected
    texts = (text for text in corrected.own or corrected.wanted if "==" in text)
    return frozenset(solved.versions) - {normalize_name(Requirement(text).name) for text in texts}
