"""Projects that a guide installs from their repositories: what they require of the set that they go into."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.dropped_packages import NOT_COMPARED, NOT_FROM_INDEX, DroppedPackage
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.main_branches import MAIN_BRANCH
from envdoctor.resolution.index_facts import IndexedRelease, IndexFacts
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.step import apart

_TAG = lazy_pattern(r"@v?(\d+(?:\.\d+)+(?:\.?post\d+)?)(?:#|$)")
_MAX_PROJECTS = 6


class SourceProject(Record, frozen=True):
    """A project from a repository, and the release of the index that stands for its revision."""

    release: IndexedRelease
    requires: tuple[str, ...]  # for the Python and the platform of the set, with those of its extras
    extras: str = ""

    @property
    def open_requirement(self) -> str:
        """The requirement for any release of the index until the one that stands for the revision."""
        name = self.release.name
        return f"{name}[{self.extras}]<={self.release.version}" if self.extras else f"{name}<={self.release.version}"

    def excluded_by(self, pins: Collection[str]) -> str:
        """The first requirement that excludes one of these exact versions, in words; empty if none does."""
        versions = {normalize_name(pin.partition("==")[0]): pin.partition("==")[2] for pin in pins if "==" in pin}
        for each in map(Requirement, self.requires):
            version = versions.get(normalize_name(each.name), "")
            if version and satisfies(public_part(version), str(each.specifier)) is False:
                return f"{self.release} requires {each.name}{each.specifier}, not {version}"
        return ""


def source_projects(context: GuideContext, state: EnvironmentState, period_end: str) -> tuple[SourceProject, ...]:
    """The projects from repositories of which the index has a release, and its requirements.

    The newest release stands for the main branch, a release for its tag, and the newest one of the guide's time for a
    commit. `period_end` is the last day of that time; "9" if it is not known.
    """
    index = apart(context.index_facts)  # the time for the questions of the rules can be over
    if index is None:
        return ()
    markers = Markers(state.python or context.trace.python, context.platform)
    found: dict[str, SourceProject] = {}
    for each in list(_of_git(context, state))[:_MAX_PROJECTS]:
        release = _release(index, each, period_end)
        if release and index.is_published_from(each.name, each.url):
            texts = tuple(_requirements(index.requires(each.name, release.version), markers, each.extras))
            if texts:  # none: they could not be read
                found[each.name] = SourceProject(release, texts, ",".join(each.extras))
    return tuple(found.values())


def _of_git(context: GuideContext, state: EnvironmentState) -> Iterator[InstallRequirement]:
    for install in context.trace.installs:
        if install.after.name == state.name and not install.action.no_deps:
            yield from (each for each in install.action.requirements if each.name and each.url.startswith("git+"))


def _release(index: IndexFacts, source: InstallRequirement, period_end: str) -> IndexedRelease | None:
    """The release that stands for a revision; None without one."""
    if tag := _TAG.search(source.url):
        return index.release(source.name, tag[1])
    releases = index.usable_releases(source.name)
    if not MAIN_BRANCH.fullmatch(source.url):
        releases = [each for each in releases if each.day and each.day <= period_end] if period_end != "9" else []
    return releases[-1] if releases else None


def _requirements(texts: Collection[str], markers: Markers, extras: Collection[str]) -> Iterator[str]:
    environment = markers.environment
    python, machine = environment["python_full_version"], environment["platform_machine"]
    lines = dict.fromkeys(markers.applicable(texts))
    for extra in extras:
        lines |= dict.fromkeys(Markers(python, machine, extra).applicable(texts))
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if not requirement.url:
            yield line


def mark_uncompared(dropped: Iterable[DroppedPackage], projects: Collection[SourceProject]) -> list[DroppedPackage]:
    """The dropped packages, with a reservation for the projects whose requirements were not compared with the set."""
    start, compared = NOT_FROM_INDEX.partition("{}")[0], {each.release.name for each in projects}
    return [
        replace(each, reason=NOT_COMPARED.format(each.reason[len(start) : -1]))
        if each.name not in compared and each.reason.startswith(start) and " git+" in each.reason
        else each
        for each in dropped
    ]
