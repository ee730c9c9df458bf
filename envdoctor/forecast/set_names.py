"""Names that the old releases of a set of packages use, and that the newer releases of their dependencies lack."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import SMALL_FILE_BYTES, read_file
from envdoctor.download.http_client import RequestFailed
from envdoctor.forecast.kept_imports import keep_imports, kept_imports
from envdoctor.forecast.module_imports import ModuleImports
from envdoctor.forecast.name_breaks import lookup
from envdoctor.forecast.uses import Use, read_uses
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.changed_names import Removal, removal_of
from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.knowledge.names import packages
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import is_prerelease, satisfies
from envdoctor.package_index.releases import Release
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.source_archive import read_source_archive
from envdoctor.package_index.wheel_sources import WheelSources, read_archive_sources
from envdoctor.resolution.index_facts import ComparedNames, IndexedRelease, InstalledSet, MissingName, UseKind

FOLDER = "compared-names-10"  # increase the number when what is compared changes
MAX_USERS = 80  # old releases of one set of which the Python files are read
MAX_FILES = 8000  # Python files of these that are parsed
READ_SECONDS = 30.0  # for the files of one release
SET_FACTOR = 4  # times that, for the files of all releases of a set
MAX_FAILURES = 3  # files that could not be read
MIN_DAYS = 180  # by which a dependency is newer than the release that uses it
GRACE_DAYS = 14  # a release is tested with a dependency of the same days
MAX_SEARCH = 8  # releases of a dependency that are read to find the last one with a name
SMALL = 400  # Python files of a wheel of which several releases are read


class _Pair(NamedTuple):
    """One release, a newer dependency, and the release of the dependency from the time of the first."""

    user: Pin
    dependency: Pin
    before: str  # empty: the dependency is younger than the user
    tops: frozenset[str]
    is_named: bool  # else only what `import` of the user runs is compared
    starts: tuple[str, ...]  # modules of the user that the code of the guide imports


class _MissingUse(msgspec.Struct, frozen=True, array_like=True):
    """The first use of a kind that the newer dependency does not support."""

    kind: UseKind
    name: str
    place: str
    last: str
    argument: str = ""


class SetNames:
    """Compares the releases of sets of packages: which pairs is fixed by their dates, not by the time that it takes.

    The result of a pair of files is kept in the cache.
    """

    def __init__(self, wheels: Wheels, imports: dict[File, ModuleImports]) -> None:
        self.wheels = wheels
        self._unreadable: set[File] = set()
        self._imports = imports  # of all Pythons: most wheels are for each of them
        self._found: dict[_Pair, tuple[_MissingUse, ...] | None] = {}
        self._tables = frozenset(packages())
        self._is_failing = False
        self._uses: dict[Pin, list[tuple[UseKind, Use]]] = {}

    def compare(self, installed: InstalledSet) -> ComparedNames:
        """Compare the uses of each old release with the newer releases of its dependencies."""
        self.allow_reading(SET_FACTOR)
        users, skipped = self.old_releases(installed)
        self.wheels.read_sources(user for user in users if self.has_wheel(user))
        self._read_dependencies(users, installed)
        missing: list[MissingName] = []
        files = 0
        for user in users:
            self.allow_reading()
            failures = self._failures
            pairs = self._pairs(user, installed)
            imports = self.module_imports(user)
            if imports and len(imports.paths) > MAX_FILES:  # plotly: only what an import loads
                pairs = [pair._replace(is_named=False) for pair in pairs]
            is_new = any(pair not in self._found and self._known(pair) is None for pair in pairs)
            files += len(imports.paths) if imports and is_new and any(pair.is_named for pair in pairs) else 0
            if (is_new and files > MAX_FILES) or self._is_failing or self._failures > failures:
                skipped.append(user)
                continue
            self._uses.pop(user, None)
            for pair in pairs:
                found = self._missing_uses(pair, pairs)
                if found is None:
                    skipped.append(user)
                    break
                missing += self._reported(pair, found, installed)
            self._uses.pop(user, None)
        return ComparedNames(missing, [str(pin) for pin in skipped])

    def _read_dependencies(self, users: Iterable[Pin], installed: InstalledSet) -> None:
        """Read in parallel the dependencies of the pairs without a result: those of the oldest releases first."""
        self.allow_reading(SET_FACTOR)
        oldest_first = sorted(users, key=self.wheels.code_day)
        pairs = (pair for user in oldest_first for pair in self._pairs(user, installed))
        wanted = dict.fromkeys(pair.dependency for pair in pairs if self._known(pair) is None)
        self.wheels.read_sources(pin for pin in wanted if self.wheels.fitting_wheel(pin))

    def allow_reading(self, factor: int = 1) -> None:
        """Limit the time of the next requests; nothing is requested after several failures."""
        self._is_failing |= self._failures > MAX_FAILURES
        self.wheels.client.end = time.monotonic() + (0 if self._is_failing else READ_SECONDS * factor)

    @property
    def _failures(self) -> int:
        return sum(each.is_failed for each in self.wheels.unread.values())

    def old_releases(self, installed: InstalledSet) -> tuple[list[Pin], list[Pin]]:
        """The releases that are older than a dependency can be, those of the guide first, then by their day."""
        versions = installed.versions
        self.wheels.read_releases(versions)
        today = f"{date.today()}"
        days = {name: self.wheels.code_day(Pin(name, version)) for name, version in versions.items()}
        newest = max((day for day in days.values() if day), default=today)
        old = [Pin(name, versions[name]) for name, day in days.items() if day and _days(day, newest) > MIN_DAYS]
        order = {name: number for number, name in enumerate(installed.users)}
        old.sort(key=lambda pin: (order.get(pin.name, len(order)), days[pin.name], pin.name))
        return old[:MAX_USERS], old[MAX_USERS:]

    def _pairs(self, user: Pin, installed: InstalledSet) -> list[_Pair]:
        imports = self.module_imports(user)
        if imports is None:
            return []
        distributions = distributions_of(installed)
        tops: dict[str, set[str]] = {}
        for top in imports.external_tops():
            if (name := distributions.get(top)) and name != user.name:
                tops.setdefault(name, set()).add(top)
        # Packages with a table of names have many files, and rules of their own.
        starts = imports.modules_of(each for each in installed.imports if each.top in imports.tops)
        found = []
        for name in sorted(tops, key=lambda each: (each in self._tables, each)):
            dependency = Pin(name, installed.versions[name])
            day = self.wheels.day(dependency)
            if not day or _days(self.wheels.code_day(user), day) <= MIN_DAYS:
                continue
            before, release = self._release_before(user, dependency), self.wheels.release(dependency)
            # A later fix of an older series, such as pydantic 1.10, is no newer dependency.
            if release and (before is None or before.key < release.key):
                version = before.version if before else ""
                is_named = user.name in installed.users
                found.append(_Pair(user, dependency, version, frozenset(tops[name]), is_named, starts))
        return found

    def _missing_uses(self, pair: _Pair, pairs: Sequence[_Pair]) -> tuple[_MissingUse, ...] | None:
        """The first missing use of each kind; None if a file could not be read."""
        if pair not in self._found:
            found = self._known(pair)
            if found is None:
                failures = self._failures
                compared = self._compare(pair, pairs)
                others = (pair.dependency, Pin(pair.dependency.name, pair.before))
                if self._failures == failures and not any(map(self.wheels.is_unreadable, others)):
                    found = compared
                    self._keep(pair, found)
            self._found[pair] = found
        return self._found[pair]

    def _compare(self, pair: _Pair, pairs: Sequence[_Pair]) -> tuple[_MissingUse, ...]:
        found: dict[UseKind, _MissingUse] = {}
        tops = frozenset().union(*(each.tops for each in pairs))
        for kind, use in self._uses_of(pair.user, tops, pair.starts, is_named=pair.is_named):
            if use.top not in pair.tops or kind in found:
                continue
            if name := self._absent(pair, use):
                last = self._last_with(before, pair.dependency, use) if (before := self._before(pair)) else ""
                last = last if last and self.wheels.is_installable(Pin(pair.dependency.name, last)) else ""
                found[kind] = _MissingUse(kind, name, f"{use.file}:{use.line}", last, use.argument)
        return tuple(found.values())

    def _uses_of(
        self, user: Pin, tops: frozenset[str], starts: tuple[str, ...], *, is_named: bool
    ) -> list[tuple[UseKind, Use]]:
        """The uses of some packages: first those that `import USER` runs, calls last."""
        if user not in self._uses:
            imports = self.module_imports(user)
            assert imports
            loaded = imports.loaded_files(user.name)
            by_code = {imports.paths[module]: None for start in starts for module in imports.loaded(start)}
            paths = dict.fromkeys((*loaded, *by_code, *(imports.other_files() if is_named else ())))
            uses = read_uses(paths, imports.sources.read, wanted=tops).uses
            kinds = [(_kind_of(use, loaded, by_code), use) for use in uses]
            order = get_args(UseKind)
            self._uses[user] = sorted(kinds, key=lambda each: order.index(each[0]))
        return self._uses[user]

    def _absent(self, pair: _Pair, use: Use) -> str:
        """The name that the dependency lacks and its earlier release had; empty if it has it or if unknown."""
        library = self.wheels.library(pair.dependency) if self.wheels.fitting_wheel(pair.dependency) else None
        if library is None:
            return self._absent_module(pair, use)
        if not library.tops:  # griffe 2 only requires the packages that have its modules
            return ""
        found = lookup(library, use)
        earlier = self.wheels.library(Pin(pair.dependency.name, pair.before)) if pair.before else None
        if earlier and use.top in earlier.tops - library.tops:  # pkg_resources, which setuptools 82 removed
            return use.top
        if found.state != "absent":
            return f"{use.module}.{use.name}" if found.state == "unknown" and _removal(pair, use) else ""
        if pair.before:
            state = lookup(earlier, use).state if earlier else "unknown"
            had_name = state == "present" or (found.is_removed and state == "unknown")
            return found.missing if had_name else ""
        return found.missing if not use.argument and self._is_required(pair.user, pair.dependency) else ""

    def _absent_module(self, pair: _Pair, use: Use) -> str:
        """The module, if a dependency without a wheel, which another project may have taken over, lacks it."""
        release = self.wheels.release(pair.dependency)
        file = _archive_file(release)
        if pair.before or file is None or use.argument or not self._is_required(pair.user, pair.dependency):
            return ""
        try:
            archive = read_source_archive(self.wheels.client, file)
        except RequestFailed:
            return ""
        return "" if archive.has_module(use.module) else use.module

    def _is_required(self, user: Pin, dependency: Pin) -> bool:
        """Whether the metadata of a release require another package without an extra."""
        metadata = self.wheels.metadata(user) if self.wheels.fitting_wheel(user) else None
        if metadata is None:
            return False
        parsed = (parse_requirement(text) for text in metadata.requires if "extra ==" not in text.replace("'", '"'))
        return any(requirement and requirement.name == dependency.name for requirement in parsed)

    def _reported(self, pair: _Pair, found: Iterable[_MissingUse], installed: InstalledSet) -> Iterator[MissingName]:
        """The first use that matters: one at the import, else one in a package that the guide names or limits."""
        user, dependency = pair.user, pair.dependency
        for use in found:
            is_optional = use.kind == "call" or dependency.name not in installed.named
            is_used = use.kind in ("import", "code") or (
                user.name in installed.users and (self._is_declared(user, dependency) or not is_optional)
            )
            if is_used:
                yield MissingName(
                    self.indexed(user), self.indexed(dependency), use.name, use.place, self.file_name(user),
                    use.kind, use.last, use.argument,
                )  # fmt: skip
                return

    def _is_declared(self, user: Pin, dependency: Pin) -> bool:
        has_metadata = self.wheels.fitting_wheel(user) is not None
        return self._is_required(user, dependency) if has_metadata else True  # of an archive they are not read

    def _before(self, pair: _Pair) -> Release | None:
        return self.wheels.release(Pin(pair.dependency.name, pair.before)) if pair.before else None

    def _release_before(self, user: Pin, dependency: Pin) -> Release | None:
        """The release of the dependency that was the newest one when the user's release was published."""
        published = self.wheels.code_day(user)
        releases = (
            each for each in reversed(self.wheels.releases(dependency.name))
            if each.day and _days(published, each.day) <= GRACE_DAYS and not is_prerelease(each.version)
            and any(file.wheel for file in each.files)
        )  # fmt: skip
        return next(releases, None)

    def _last_with(self, before: Release, dependency: Pin, use: Use) -> str:
        """The last release with the name: by the table of removed names or bisection, else the one of that time."""
        row = removal_of(f"{use.module}.{use.name}") if use.name and not use.argument else None
        if row and row.package == dependency.name and satisfies(dependency.version, f">{row.last}"):
            if not row.again or satisfies(dependency.version, f"<{row.again}"):
                return row.last
            before = self.wheels.release(Pin(dependency.name, row.again)) or before
        library = self.wheels.library(dependency)
        if library is None or len(library.sources.paths) > SMALL:
            return before.version
        between = [
            release for release in self.wheels.releases(dependency.name)
            if before.key <= release.key and _days(release.day, self.wheels.day(dependency)) > 0
            and not is_prerelease(release.version) and any(file.wheel for file in release.files)
        ]  # fmt: skip
        low, high = 0, len(between)
        for _ in range(MAX_SEARCH):
            if high - low < 2:
                break
            middle = (low + high) // 2
            other = self.wheels.library(Pin(dependency.name, between[middle].version))
            is_there = other is not None and lookup(other, use).state == "present"
            low, high = (middle, high) if is_there else (low, middle)
        return between[low].version if between else before.version

    def module_imports(self, pin: Pin) -> ModuleImports | None:
        """The modules of a release; None if they could not be read."""
        file = self._file(pin)
        if file is None or file in self._unreadable:
            return None
        if file not in self._imports:
            sources = self._sources_of(pin)
            if sources is None:
                self._unreadable.add(file)
                return None
            self._imports[file] = ModuleImports(sources, kept_imports(file))
        return self._imports[file]

    def keep_imports(self) -> None:
        """Keep in the cache what was parsed of the wheels."""
        for file, imports in self._imports.items():
            if imports.is_changed:
                keep_imports(file, imports.kept)
                imports.is_changed = False

    def _sources_of(self, pin: Pin) -> WheelSources | None:
        """The Python files of the wheel, else of the source archive."""
        if self.has_wheel(pin):
            return self.wheels.sources(pin)
        file = _archive_file(self.wheels.release(pin))
        try:
            return read_archive_sources(self.wheels.client, file) if file else None
        except RequestFailed:
            return None

    def _file(self, pin: Pin) -> File | None:
        return self.wheels.any_wheel(pin) if self.has_wheel(pin) else _archive_file(self.wheels.release(pin))

    def has_wheel(self, pin: Pin) -> bool:
        """Whether a release has a wheel, for any Python."""
        release = self.wheels.release(pin)
        return release is not None and any(file.wheel for file in release.files)

    def file_name(self, pin: Pin) -> str:
        """The wheel or the source archive of a release."""
        file = self._file(pin)
        return file.name if file else str(pin)

    def indexed(self, pin: Pin) -> IndexedRelease:
        """The release with its day."""
        return IndexedRelease(pin.name, pin.version, self.wheels.day(pin))

    def _known(self, pair: _Pair) -> tuple[_MissingUse, ...] | None:
        """What was found for a pair; None if it was not compared."""
        known = self._found.get(pair)
        if known is None and (known := self._cached(pair)) is not None:
            self._found[pair] = known
        return known

    def _cached(self, pair: _Pair) -> tuple[_MissingUse, ...] | None:
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.msgpack.decode(read_file(self._path(pair), SMALL_FILE_BYTES), type=tuple[_MissingUse, ...])
        return None

    def _keep(self, pair: _Pair, found: tuple[_MissingUse, ...]) -> None:
        keep(self._path(pair), msgspec.msgpack.encode(found))

    def _path(self, pair: _Pair) -> Path:
        """The file in the cache: its name depends on the two files and on what they are compared with."""
        files = [file.url if (file := self._file(pin)) else str(pin) for pin in (pair.user, pair.dependency)]
        text = "\n".join((*files, pair.before, *sorted(pair.tops), str(pair.is_named), *pair.starts))
        return cached_file(FOLDER, f"{pair.user.name}-{pair.dependency.name}", "msgpack", text, digits=24)


def distributions_of(installed: InstalledSet) -> dict[str, str]:
    """The packages by their top-level module, as far as its name shows it."""
    found = {name.replace("-", "_"): name for name in installed.versions}
    return found | {top: name for top, name in DISTRIBUTIONS.items() if name in installed.versions}


def _removal(pair: _Pair, use: Use) -> Removal | None:
    """The row of a name that the dependency lost since the release of that time, from the table of removed names."""
    row = removal_of(f"{use.module}.{use.name}") if use.name and not use.argument and pair.before else None
    is_of = row is not None and row.package == pair.dependency.name
    return row if row and is_of and row.is_between(pair.before, pair.dependency.version) else None


def _kind_of(use: Use, loaded: Container[str], by_code: Container[str]) -> UseKind:
    if use.is_deferred:
        return "call"
    if use.is_conditional:
        return "module"
    return "import" if use.file in loaded else "code" if use.file in by_code else "module"


def _archive_file(release: Release | None) -> File | None:
    return next((file for file in release.files if not file.wheel), None) if release else None


def _days(first: str, last: str) -> int:
    return (date.fromisoformat(last) - date.fromisoformat(first)).days
