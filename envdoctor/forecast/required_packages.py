"""The packages that an installer can bring with others, by the requirements of their newest releases."""

from __future__ import annotations

import time
from collections.abc import Mapping

from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import is_prerelease
from envdoctor.resolution.index_facts import InstalledSet

MAX_PACKAGES = 250


def required_packages(wheels: Wheels, named: Mapping[str, str]) -> Mapping[str, str] | None:
    """These packages and what they require, with their requirements: newest releases, also for other machines.

    An empty version is the newest one. None if the index was not read in time or has too many of them.
    """
    found: dict[str, str] = {}
    waiting = dict(named)
    while waiting:
        if time.monotonic() > wheels.client.end or len(found) + len(waiting) > MAX_PACKAGES:
            return None
        wheels.read_releases(waiting)
        pins = [Pin(name, version or _newest(wheels, name)) for name, version in waiting.items()]
        found |= dict(pins)
        published = [pin for pin in pins if pin.version and wheels.release(pin)]
        wheels.read_metadata(published)
        texts = (text for pin in published if (read := wheels.metadata(pin)) for text in read.requires)
        required = [each.name for text in texts if (each := parse_requirement(text))]
        waiting = {name: "" for name in required if name not in found}
    return found


def _newest(wheels: Wheels, name: str) -> str:
    usable = (each.version for each in reversed(wheels.releases(name)) if not each.is_yanked)
    return next((version for version in usable if not is_prerelease(version)), "")


def specifiers_of(wheels: Wheels, installed: InstalledSet, package: str) -> Mapping[str, str]:
    """The releases of a set that require a package, each with its specifier; what cannot be read is left out."""
    wheels.read_releases(installed.versions)
    pins = [pin for name, version in installed.versions.items() if wheels.release(pin := Pin(name, version))]
    wheels.read_metadata(pins)
    found: dict[str, str] = {}
    for pin in pins:
        read = wheels.metadata(pin)
        parsed = map(parse_requirement, read.requires if read else ())
        parts = [each for each in parsed if each and each.name == package and each.applies_to(installed.python)]
        if parts:
            found[str(pin)] = ",".join(each.specifier for each in parts if each.specifier)
    return found
