"""Forecasts what upgrades would break: each newest release alone, then a set that is safe together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from envdoctor.core.record import Record
from envdoctor.core.records import Machine
from envdoctor.download.http_client import HttpClient
from envdoctor.forecast.gpu_breaks import GpuJudge
from envdoctor.forecast.metadata_breaks import MetadataJudge
from envdoctor.forecast.name_breaks import NameJudge
from envdoctor.forecast.records import Break, Upgrade
from envdoctor.forecast.rule_breaks import RuleJudge
from envdoctor.forecast.script_breaks import ScriptJudge, read_programs
from envdoctor.forecast.wheels import Pin, Wheels, read_code
from envdoctor.knowledge.architectures import Capability
from envdoctor.knowledge.versions import is_local_build, local_part, minor_of, public_part, version_key
from envdoctor.locking.lock import Target
from envdoctor.locking.resolve import TORCH_FAMILY, wheel_tags
from envdoctor.package_index.releases import Release

NAME_KINDS = ("module", "name", "argument", "attribute", "result")


class Judge(Protocol):
    """Finds the breaks of one upgrade while the other packages stay."""

    def judge(self, versions: Mapping[str, str], pin: Pin) -> Iterator[Break]:
        """The breaks."""
        ...


class Locked(Record, frozen=True, kw_only=True):
    """The packages of a lock or an environment, and where they run."""

    versions: dict[str, str]
    target: Target  # with one Python
    python: str  # as precise as it is known: "3.12.4" or "3.12"
    cuda: str = ""  # of torch; empty: that of PyPI
    machine: Machine | None = None  # None: the rules are not evaluated
    capability: Capability | None = None  # of the GPU


class Forecast:
    """One lock and the index: candidates, and their breaks."""

    def __init__(self, locked: Locked, client: HttpClient, index: str, *, until: str) -> None:
        self.locked = locked
        self.wheels = Wheels(client, index, wheel_tags(locked.target.platform, locked.target.pythons[0]), until=until)
        self.versions = {name: public_part(version) for name, version in self._judged_packages()}
        self.held_builds = {
            name for name in TORCH_FAMILY if name in self.versions and local_part(locked.versions[name])
        }
        self.metadata = MetadataJudge(self.wheels, locked.python, locked.target.architecture)
        self.names = NameJudge(self.wheels)
        self.names.installed = tuple(Pin(name, version) for name, version in self.versions.items())
        self.scripts = ScriptJudge(self.wheels)
        gpu = GpuJudge(self.wheels, locked.capability, locked.target.architecture)
        self.judges: list[Judge] = [self.metadata, self.names, self.scripts, gpu]
        if locked.machine:
            self.judges.append(RuleJudge(self.wheels, locked.machine, locked.target.pythons[0], locked.cuda))

    def _judged_packages(self) -> Iterator[tuple[str, str]]:
        """The packages with a release of the index."""
        for name, version in sorted(self.locked.versions.items()):
            if version_key(version) is None:
                self.wheels.add_unread(name, f"version {version or 'unknown'} is not one of an index", is_failed=True)
            elif is_local_build(version):
                self.wheels.add_unread(name, f"{version} was built locally; its releases are not compared")
            else:
                yield name, version

    def use(self, wheels: Wheels, names: NameJudge) -> None:
        """Judge metadata and names by what another forecast has read."""
        locked = self.locked
        self.wheels, self.names = wheels, names
        self.metadata = MetadataJudge(wheels, locked.python, locked.target.architecture)
        self.judges = [self.metadata, names]

    def add_code(self, folder: Path) -> None:
        """Also judge what the user's code uses and calls."""
        self.names.code = read_code(folder, self.wheels)
        self.scripts.programs = read_programs(folder, self.wheels)

    def read(self, report: Callable[[str], None]) -> None:
        """Read the pages of all packages, and metadata and sources of the locked releases."""
        report(f"Reading the releases of {len(self.versions)} packages")
        self.wheels.read_releases(self.versions)
        pins = [Pin(name, version) for name, version in self.versions.items()]
        known = [pin for pin in pins if self._is_on_index(pin)]
        report(f"Reading metadata of {len(known)} locked releases")
        self.wheels.read_metadata(known)
        report(f"Reading the Python sources of {len(known)} locked releases")
        self.wheels.read_sources(known)

    def _is_on_index(self, pin: Pin) -> bool:
        if not self.wheels.releases(pin.name):
            return False  # its page could not be read, which is noted
        if self.wheels.release(pin) is None:
            self.wheels.add_unread(str(pin), "the index does not have this release", is_failed=True)
            return False
        return True

    def candidates(self) -> list[Upgrade]:
        """The newest release of each package, and the newest one of the same minor version if it is another."""
        found = []
        for name, version in self.versions.items():
            pin = Pin(name, version)
            if not self._is_on_index(pin):
                continue
            newer = self.wheels.newer(pin)
            if newer and name in self.held_builds:
                build = self.locked.versions[name]
                self.wheels.add_unread(f"{name} {build}", "a build of another index, whose releases are not read")
                continue
            patches = [release for release in newer if minor_of(release.version) == minor_of(version)]
            found += [self._upgrade(pin, newer, newer[-1], is_patch=False)] if newer else []
            if patches and patches[-1] != newer[-1]:
                found.append(self._upgrade(pin, newer, patches[-1], is_patch=True))
        return found

    def _upgrade(self, pin: Pin, newer: Sequence[Release], release: Release, *, is_patch: bool) -> Upgrade:
        if not all(each.uploaded for each in newer):
            self.wheels.add_unread(pin.name, "the index states no upload date of some releases; ordered by version")
        return Upgrade(
            package=pin.name, locked=pin.version, release=release.version, day=release.day, is_patch=is_patch,
            newer=len(newer),
        )  # fmt: skip

    def judge(self, upgrade: Upgrade) -> Upgrade:
        """The upgrade with its breaks, each with the first release that has it."""
        pin = Pin(upgrade.package, upgrade.release)
        breaks = tuple(self.find_breaks(self.versions, pin))
        if not upgrade.is_patch:
            breaks = tuple(self.first_release(each) for each in breaks)
        return replace(upgrade, breaks=breaks)

    def find_breaks(self, versions: Mapping[str, str], pin: Pin) -> Iterable[Break]:
        """What breaks if one package of a set gets another version."""
        found = {each.key: each for judge in self.judges for each in judge.judge(versions, pin)}
        return found.values()

    def first_release(self, found: Break) -> Break:
        """The break with the first release after the locked one that has it, by bisection."""
        newer = self.wheels.newer(Pin(found.package, found.locked))
        releases = [release for release in newer if release.version != found.release]
        low, high = 0, len(releases)  # the releases from `high` on have the break
        best = found
        while low < high:
            middle = (low + high) // 2
            same = self._in_release(found, releases[middle])
            if same:
                best, high = same, middle
            else:
                low = middle + 1
        return best

    def _in_release(self, found: Break, release: Release) -> Break | None:
        """The same break in another release; None if it does not have it."""
        pin = Pin(found.package, release.version)
        if found.kind in NAME_KINDS:
            has_break = self.names.has_break(found, pin)
            return replace(found, release=release.version, day=release.day) if has_break else None
        wanted = _subject(found)
        judges = [judge for judge in self.judges if judge is not self.names]
        same = (each for judge in judges for each in judge.judge(self.versions, pin) if _subject(each) == wanted)
        return next(same, None)


def _subject(found: Break) -> tuple[str, str, str]:
    """What breaks: the bound of a requirement may differ from release to release."""
    text = found.message
    if found.kind in ("python", "wheel"):
        text = ""
    elif found.kind == "requirement":
        text = found.evidence[0].value if found.user != found.package else found.message.split(",")[0].split("=")[0]
    elif found.kind == "rule":
        text = text.partition(":")[0]
    return found.kind, found.user, text
