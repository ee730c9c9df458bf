"""The imports and the attributes of code that the installed releases do not have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import partial

from envdoctor.forecast.set_names import distributions_of
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.imports import spans_of_name
from envdoctor.knowledge.modules import spans_of_module, spans_of_module_name, tables
from envdoctor.knowledge.versions import is_prerelease
from envdoctor.package_index.releases import Release
from envdoctor.package_index.source_archive import SourceArchive
from envdoctor.resolution.index_facts import AbsentImport, CodeImport, IndexedRelease, InstalledSet

_YEARS = (1, 2, 3, 5)  # by which the releases are older in which an absent name is searched
SEARCH_SECONDS = 6.0  # for the older releases of all packages
ReadArchive = Callable[[Pin], SourceArchive | None]


def absent_imports(
    wheels: Wheels, installed: InstalledSet, used: Sequence[CodeImport], read_archive: ReadArchive
) -> Iterator[AbsentImport]:
    """The imports of code that the installed releases do not have.

    A module can receive attributes that its source does not name. One is absent only if the module names it as
    removed, or if an older release has it. Older ones are read for names that no table has.
    """
    distributions = distributions_of(installed)
    named = {distributions[each.top] for each in used if each.top in distributions}
    parts = {name: [each for each in installed.versions if each.startswith(f"{name}-")] for name in named}
    wheels.read_releases({*named, *(each for listed in parts.values() for each in listed)})
    until = time.monotonic() + SEARCH_SECONDS
    for each in used:
        pin = Pin(name, installed.versions[name]) if (name := distributions.get(each.top)) else None
        if pin is None or time.monotonic() > wheels.client.end or not wheels.fitting_wheel(pin):
            continue
        others = [Pin(other, installed.versions[other]) for other in parts[pin.name]]
        missing, is_removed = _absent(wheels, pin, each, others, read_archive)
        needs_proof = each.is_attribute or not each.is_certain
        is_unlisted = each.top not in tables() if needs_proof else bool(each.file) and not _is_listed(each)
        is_searched = missing and is_unlisted and time.monotonic() < until
        last = last_release(wheels, pin, partial(_has, wheels, each), until=until) if is_searched else None
        if missing and (last or is_removed or not needs_proof):
            is_installable = last and wheels.fitting_wheel(Pin(pin.name, last.version))
            version = last.version if last and is_installable else ""
            yield AbsentImport(each, missing, indexed(wheels, pin), version)


def _is_listed(used: CodeImport) -> bool:
    """Whether a table has the releases with an imported name or its module."""
    spans = spans_of_module(used.module), spans_of_module_name(used.module, used.name)
    return any((*spans, spans_of_name(used.module, used.name)))


def _absent(
    wheels: Wheels, dependency: Pin, used: CodeImport, parts: Sequence[Pin], read_archive: ReadArchive
) -> tuple[str, bool]:
    """The name if a release does not have it, and whether it names it as removed; empty if it has it or if unknown.

    A project can divide a module among packages with the name of the project: sagemaker, sagemaker-core.
    """
    fitting = [each for each in (dependency, *parts) if wheels.fitting_wheel(each)]
    own, *others = libraries = wheels.libraries(fitting)
    if own:
        having = [each for each in libraries if each and used.top in each.tops]
        found = [each.find(used.module, used.name) for each in having]
        is_absent = found and None not in others and all(each.state == "absent" for each in found)
        return (found[0].missing, found[0].is_removed) if is_absent else ("", False)
    archive = read_archive(dependency)
    return "" if archive is None or archive.has_module(used.module) else used.module, False


def last_release(
    wheels: Wheels,
    pin: Pin,
    has: Callable[[Pin], bool],
    *,
    until: float,
    read: Callable[[Sequence[Pin]], object] | None = None,
) -> Release | None:
    """The last release before another one that has something; None if none is found. `read` reads several at once."""
    releases = [
        each for each in wheels.releases(pin.name)
        if each.day and not each.is_yanked and not is_prerelease(each.version)
        and any(file.wheel for file in each.files)
    ]  # fmt: skip
    installed = wheels.release(pin)
    if installed is None or installed not in releases:
        return None
    older = releases[: releases.index(installed)]
    newest = date.fromisoformat(installed.day)
    days = [str(newest - timedelta(days=365 * years)) for years in _YEARS]
    counts = list(dict.fromkeys(filter(None, (sum(each.day <= day for each in older) for day in days))))
    if read:
        read([_pin(older[count - 1]) for count in counts])
    for count, end in zip(counts, (len(older), *counts), strict=False):
        if has(_pin(older[count - 1])):
            return _between(older[count - 1 : end], has, until=until)
    return None


def _between(releases: Sequence[Release], has: Callable[[Pin], bool], *, until: float) -> Release:
    """The last of these releases with what the first one has, by bisection, as far as the time permits."""
    low, high = 0, len(releases)
    while high - low > 1 and time.monotonic() < until:
        middle = (low + high) // 2
        low, high = (middle, high) if has(_pin(releases[middle])) else (low, middle)
    return releases[low]


def _pin(release: Release) -> Pin:
    return Pin(release.package, release.version)


def _has(wheels: Wheels, used: CodeImport, pin: Pin) -> bool:
    found = wheels.library(pin)
    return found is not None and found.find(used.module, used.name).state == "present"


def indexed(wheels: Wheels, pin: Pin) -> IndexedRelease:
    """A release with the day of its upload."""
    release = wheels.release(pin)
    return IndexedRelease(pin.name, pin.version, release.day if release else "")
