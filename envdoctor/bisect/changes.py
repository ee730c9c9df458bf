"""The ordered changes between two states: every release in between, by upload date, else by version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.bisect.records import Change, PackageSet, has_version
from envdoctor.knowledge.versions import Key, is_prerelease, public_part, version_key
from envdoctor.package_index.releases import Release, find_release

UNDATED = "9"  # sorts after every date
REMOVED = "99"  # sorts after UNDATED: the removal of a package that no other one requires
Releases = Mapping[str, Sequence[Release]]  # of an index, oldest version first


class Event(NamedTuple):
    """A release that became available, or a package that was removed: its version is empty."""

    uploaded: str  # time; UNDATED if the index states none
    key: Key  # of the version: the order without dates
    name: str
    version: str


class Space(NamedTuple):
    """The states between the good one, number 0, and the bad one, whose number is that of the last event."""

    good: PackageSet
    bad: PackageSet
    events: tuple[Event, ...]
    start: str  # time of the newest release of the good state; empty without dates
    good_times: dict[str, str] = {}  # upload of the good versions, by package

    def day_of(self, name: str, version: str) -> str:
        """The day on which a release was uploaded; empty if it is unknown."""
        times = [event.uploaded for event in self.events if (event.name, event.version) == (name, version)]
        times += [self.good_times.get(name, "")] if self.good.get(name) == version else []
        return next((each[:10] for each in times if each not in ("", UNDATED)), "")

    def limits(self, state: int) -> PackageSet:
        """The newest version of each package in a state."""
        newest = dict(self.good)
        for event in self.events[:state]:
            if event.uploaded == REMOVED:
                continue
            known = newest.get(event.name)
            if known is None or self._is_downgrade(event.name) or key_of(event.version) > key_of(known):
                newest[event.name] = event.version
        return {name: public_part(each) for name, each in sorted(newest.items()) if has_version(each)}

    def _is_downgrade(self, name: str) -> bool:
        """Whether the package of an event is older in the bad state."""
        return name in self.good and key_of(self.good[name]) > key_of(self.bad[name])

    def time_of(self, state: int) -> str:
        """The time up to which releases of packages without a limit exist in a state; empty without dates."""
        dates = [event.uploaded for event in self.events[:state] if event.uploaded not in (UNDATED, REMOVED)]
        return max([self.start, *dates])

    def arrived(self, state: int) -> set[str]:
        """Packages of the bad state that are not in the good one and have a release in this state."""
        return {event.name for event in self.events[:state]} - self.good.keys()

    def missing(self, state: int) -> set[str]:
        """Packages of the bad state that are not in the good one and have no release in this state."""
        return self.bad.keys() - self.good.keys() - self.arrived(state)

    def kept(self, state: int) -> set[str]:
        """Packages of the good state that are removed after this state."""
        return {event.name for event in self.events[state:] if event.uploaded == REMOVED}

    def versions_before(self, state: int, name: str) -> list[str]:
        """The versions of a package that arrived before a state, in the order of their upload."""
        return [event.version for event in self.events[: state - 1] if event.name == name]


def make_space(
    good: PackageSet,
    bad: PackageSet,
    releases: Releases,
    start: str = "",
    *,
    python: str = "",
    removed: Sequence[str] = (),
) -> Space:
    """Order the releases between two sets that this Python can install.

    `start`: the date of the good state; default: that of its newest release. `removed`: packages of the good state
    that no other package requires.
    """
    if python:
        releases = {
            name: [
                each for each in listed if each.fits_python(python) or each.version in (good.get(name), bad.get(name))
            ]
            for name, listed in releases.items()
        }
    times = {name: _date_of(releases, name, version) for name, version in good.items()}
    start = start or max((time for time in times.values() if time != UNDATED), default="")
    events = [event for name in bad for event in _events(name, good, bad, releases.get(name, ()), start)]
    events += [Event(REMOVED, key_of(""), name, "") for name in removed if name not in bad]
    return Space(good, bad, tuple(sorted(events)), start, times)


def changes_of(good: PackageSet, bad: PackageSet, events: Sequence[Event] = ()) -> tuple[Change, ...]:
    """The packages that differ, with the number of releases in between."""
    return tuple(
        Change(name, good.get(name, ""), bad.get(name, ""), sum(event.name == name for event in events))
        for name in sorted(good.keys() | bad.keys())
        if good.get(name) != bad.get(name)
    )


def key_of(version: str) -> Key:
    """The sort key of a version; the lowest for one outside of PEP 440."""
    return version_key(version) or ((0,), (0, 0), 0, 0)


def _events(name: str, good: PackageSet, bad: PackageSet, releases: Sequence[Release], start: str) -> Iterator[Event]:
    before, after = good.get(name), bad[name]
    if before == after:
        return
    last = key_of(after)
    listed = find_release(releases, after)
    if before is None or last > key_of(before):
        for release in _between(before, after, releases):
            date = _date(releases, release)
            if before is not None or date > start or release is listed:
                yield Event(date, release.key, name, release.version if release is not listed else after)
    if listed is None or (before is not None and last <= key_of(before)):
        # A release that the index does not list, an older version, or another build of the same one.
        yield Event(UNDATED, last, name, after)


def _between(before: str | None, after: str, releases: Sequence[Release]) -> Iterator[Release]:
    """The releases above one version up to another that an installer would choose."""
    first, last = key_of(before) if before else None, key_of(after)
    with_prereleases = is_prerelease(after) or (before is not None and is_prerelease(before))
    for release in releases:
        is_between = release.key <= last and (first is None or release.key > first)
        is_wanted = with_prereleases or not is_prerelease(release.version)
        if is_between and ((is_wanted and not release.is_yanked) or release.key == last):
            yield release


def _date_of(releases: Releases, name: str, version: str) -> str:
    listed = releases.get(name, ())
    found = find_release(listed, version)
    return _date(listed, found) if found else UNDATED


def _date(releases: Sequence[Release], release: Release) -> str:
    """The time of the upload; without one, that of the next newer release that has one."""
    newer = (each.uploaded for each in releases if each.key >= release.key and each.uploaded)
    return next(newer, UNDATED)
