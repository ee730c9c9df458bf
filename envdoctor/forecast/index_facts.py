"""Releases, imports and build files as the package index has them, for the rules on guides."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from envdoctor.core.errors import EnvdoctorError
from envdoctor.download.http_client import RequestFailed, new_http_client
from envdoctor.download.sources import Sources
from envdoctor.forecast.module_imports import ModuleImports
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.names import packages
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.versions import is_prerelease
from envdoctor.locking.lock import Target
from envdoctor.locking.resolve import wheel_tags
from envdoctor.package_index.address import index_address
from envdoctor.package_index.build_needs import missing_build_modules
from envdoctor.package_index.releases import Release
from envdoctor.package_index.source_archive import SourceArchive, read_source_archive
from envdoctor.resolution.index_facts import (
    AbsentImport,
    BuildImport,
    CodeImport,
    IndexedRelease,
    InstalledSet,
    MissingName,
)

TOTAL_SECONDS = 30.0  # of all questions of a command
SET_SECONDS = 10.0  # of the imports of one environment
_MAX_USERS = 20
_MIN_DAYS = 180  # by which a dependency is newer than the release that imports from it
_GRACE_DAYS = 14  # a release is tested with a dependency of the same days
_MAX_SEARCH = 5  # releases of a dependency that are read to find the last one with a name
_SMALL = 400  # Python files of a wheel of which several releases are read
_GLIBC = "2.35"  # of Ubuntu 22.04
# Modules whose distribution has another name.
_DISTRIBUTIONS = {
    "PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
    "google": "protobuf", "attr": "attrs", "dateutil": "python-dateutil", "jwt": "pyjwt", "bs4": "beautifulsoup4",
    "pl_bolts": "lightning-bolts", "OpenSSL": "pyopenssl", "fitz": "pymupdf", "docx": "python-docx",
    "pkg_resources": "setuptools", "mpl_toolkits": "matplotlib", "zmq": "pyzmq", "usb": "pyusb", "git": "gitpython",
}  # fmt: skip


_REPOSITORY = re.compile(r"(?:github|gitlab)\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?(?:[@/#]|$)")


class _Question(NamedTuple):
    """One release and one newer dependency."""

    user: Pin
    dependency: Pin
    tops: frozenset[str]


P = ParamSpec("P")
T = TypeVar("T")


def _limited(method: Callable[Concatenate[IndexReader, P], T]) -> Callable[Concatenate[IndexReader, P], T]:
    """Limit the time of one question, and count it."""

    @wraps(method)
    def limited(self: IndexReader, /, *arguments: P.args, **named: P.kwargs) -> T:
        if self._end is not None:  # a part of another question
            return method(self, *arguments, **named)
        start = time.monotonic()
        self._end = start + min(self._left, SET_SECONDS)
        try:
            return method(self, *arguments, **named)
        finally:
            self._end = None
            self._left -= time.monotonic() - start

    return limited


class IndexReader:
    """Reads an index within a time limit. After an unreachable index nothing more is requested."""

    def __init__(self, sources: Sources, *, seconds: float = TOTAL_SECONDS) -> None:
        self.sources = sources
        self._left = seconds  # for further questions; what passes between them does not count
        self._end: float | None = None  # of the present question
        self._readers: dict[tuple[str, str], Wheels] = {}
        self._is_unreachable = False
        self._missing: dict[_Question, MissingName | None] = {}
        self._imports: dict[Pin, ModuleImports | None] = {}
        self._archives: dict[Pin, SourceArchive | None] = {}

    @_limited
    def newest_release(self, name: str) -> IndexedRelease | None:
        """The newest release that is not withdrawn; None if it is unknown."""
        releases = self._releases(name)
        usable = [each for each in releases if not each.is_yanked and not is_prerelease(each.version)]
        return _indexed(usable[-1]) if usable else None

    @_limited
    def release(self, name: str, version: str) -> IndexedRelease | None:
        """A release; None if it is unknown."""
        wheels = self._reader()
        found = wheels.release(Pin(name, version)) if wheels and self._releases(name) else None
        return _indexed(found) if found else None

    @_limited
    def is_published_from(self, name: str, url: str) -> bool:
        """Whether the newest release of a package names this repository as its own."""
        newest, repository = self.newest_release(name), _REPOSITORY.search(url)
        wheels = self._reader()
        metadata = wheels.metadata(Pin(name, newest.version)) if wheels and newest and newest.has_wheel else None
        own = {
            found[1].lower() for each in (metadata.urls if metadata else ()) if (found := _REPOSITORY.search(each))
        }
        return repository is not None and repository[1].lower() in own

    @_limited
    def build_imports(self, name: str, version: str, python: str) -> Sequence[BuildImport]:
        """The modules that an isolated build of a release lacks."""
        wheels = self._reader()
        release = wheels.release(Pin(name, version)) if wheels and self._releases(name) else None
        archive = self._archive(Pin(name, version)) if release else None
        if release is None or archive is None:
            return ()
        found = missing_build_modules(archive, python)
        is_legacy = "pyproject.toml" not in archive.texts
        return tuple(BuildImport(_indexed(release), module, line, archive.name, is_legacy) for module, line in found)

    @_limited
    def missing_names(self, installed: InstalledSet) -> Sequence[MissingName]:
        """The names that packages import from newer releases of others, which no longer have them."""
        wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
        if wheels is None:
            return ()
        found = []
        for question in self._questions(wheels, installed):
            if time.monotonic() > wheels.client.end:
                break
            if question not in self._missing:
                self._missing[question] = self._find_missing(wheels, question)
            if missing := self._missing.get(question):
                found.append(missing)
        return found

    @_limited
    def absent_imports(self, installed: InstalledSet, used: Sequence[CodeImport]) -> Sequence[AbsentImport]:
        """The imports of code that the installed releases do not have."""
        wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
        if wheels is None:
            return ()
        distributions = _distributions(installed)
        named = {distributions[each.top] for each in used if each.top in distributions}
        wheels.read_releases(named)
        found = []
        for each in used:
            pin = Pin(name, installed.versions[name]) if (name := distributions.get(each.top)) else None
            if pin is None or time.monotonic() > wheels.client.end or not wheels.fitting_wheel(pin):
                continue
            if missing := self._absent(wheels, pin, each.module, each.name):
                found.append(AbsentImport(each, missing, _indexed_pin(wheels, pin)))
        return found

    def _reader(self, python: str = "3.12", platform: str = "x86_64 ") -> Wheels | None:
        """The releases for one Python and platform; None if the index is unreachable or the time is over."""
        if self._is_unreachable or self._end is None or time.monotonic() > self._end:
            return None
        if (python, platform) not in self._readers:
            architecture, _, glibc = platform.partition(" ")
            target = Target(architecture, glibc if re.fullmatch(r"2\.\d+", glibc) else _GLIBC, (python,))
            try:
                client = new_http_client(self.sources, end=self._end)
                index = client.store_credentials(index_address(self.sources, "envdoctor audit"))
            except EnvdoctorError:
                self._is_unreachable = True
                return None
            self._readers[python, platform] = Wheels(client, index, wheel_tags(target.platform, python))
        wheels = self._readers[python, platform]
        wheels.client.end = self._end
        return wheels

    def _releases(self, name: str) -> tuple[Release, ...]:
        wheels = self._reader()
        if wheels is None:
            return ()
        return wheels.releases(name)

    def _questions(self, wheels: Wheels, installed: InstalledSet) -> Iterator[_Question]:
        """The old releases, each with the newer packages that it imports from."""
        users = [Pin(name, installed.versions[name]) for name in installed.users if name in installed.versions]
        wheels.read_releases(pin.name for pin in users)
        dated = [pin for pin in users if wheels.day(pin) and _days(wheels.day(pin), f"{date.today()}") > _MIN_DAYS]
        named, others = dated[: _MAX_USERS // 2], dated[_MAX_USERS // 2 :]
        dated = [*named, *sorted(others, key=wheels.day)][:_MAX_USERS]
        wheels.read_sources(dated)
        distributions = _distributions(installed)
        sources = {pin: found for pin in dated if (found := wheels.sources(pin))}
        for user in sorted(sources, key=lambda pin: len(sources[pin].paths)):  # small ones first
            imports = self._module_imports(wheels, user)
            tops: dict[str, set[str]] = {}
            for top in imports.external_tops() if imports else ():
                if (name := distributions.get(top)) and name != user.name:
                    tops.setdefault(name, set()).add(top)
            wheels.read_releases(tops)
            # Packages with a table of names have many files, and rules of their own.
            for name in sorted(tops, key=lambda each: each in packages()):
                dependency = Pin(name, installed.versions[name])
                day = wheels.day(dependency)
                if day and _days(wheels.day(user), day) > _MIN_DAYS:
                    yield _Question(user, dependency, frozenset(tops[name]))

    def _module_imports(self, wheels: Wheels, pin: Pin) -> ModuleImports | None:
        if pin not in self._imports:
            sources = wheels.sources(pin)
            self._imports[pin] = ModuleImports(sources) if sources else None
        return self._imports[pin]

    def _find_missing(self, wheels: Wheels, question: _Question) -> MissingName | None:
        """The first name that is missing, one that importing the package itself needs before others."""
        user, dependency = question.user, question.dependency
        imports, sources = self._module_imports(wheels, user), wheels.any_wheel(user)
        before = self._release_before(wheels, user, dependency)
        if imports is None or sources is None or (before and before.version == dependency.version):
            return None
        for each, is_imported in _imports_in_order(imports, user, question.tops):
            if time.monotonic() > wheels.client.end:
                return None
            name = self._absent(wheels, dependency, each.module, each.name)
            if not name:
                continue
            if before and not self._has(wheels, Pin(before.package, before.version), each):
                continue
            if before is None and not self._is_required(wheels, user, dependency):
                continue
            last = self._last_with(wheels, before, dependency, each) if before else ""
            return MissingName(
                _indexed_pin(wheels, user), _indexed_pin(wheels, dependency), name, f"{each.file}:{each.line}",
                sources.name, is_imported, last,
            )  # fmt: skip
        return None

    def _release_before(self, wheels: Wheels, user: Pin, dependency: Pin) -> Release | None:
        """The release of the dependency that was the newest one when the user's release was published."""
        published = wheels.day(user)
        releases = [
            each for each in wheels.releases(dependency.name)
            if each.day and _days(published, each.day) <= _GRACE_DAYS and not is_prerelease(each.version)
            and any(file.wheel for file in each.files)
        ]  # fmt: skip
        return releases[-1] if releases else None

    def _absent(self, wheels: Wheels, dependency: Pin, module: str, name: str) -> str:
        """The name if a release does not have it; empty if it has it, or if that is unknown."""
        library = wheels.library(dependency) if wheels.fitting_wheel(dependency) else None
        if library:
            found = library.find(module, name)
            return found.missing if found.state == "absent" else ""
        archive = self._archive(dependency)
        if archive is None or not archive.paths:
            return ""
        path = module.replace(".", "/")
        has_module = any(re.search(rf"(?:^|/){re.escape(path)}(?:\.py|/)", file) for file in archive.paths)
        return "" if has_module else module

    def _has(self, wheels: Wheels, pin: Pin, each: CodeImport) -> bool:
        library = wheels.library(pin)
        return library is not None and library.find(each.module, each.name).state == "present"

    def _is_required(self, wheels: Wheels, user: Pin, dependency: Pin) -> bool:
        metadata = wheels.metadata(user)
        parsed = (parse_requirement(text) for text in (metadata.requires if metadata else ()))
        return any(requirement and requirement.name == dependency.name for requirement in parsed)

    def _last_with(self, wheels: Wheels, before: Release, dependency: Pin, each: CodeImport) -> str:
        """The last release of the dependency with the name, by bisection; the one of that time if it is large."""
        library = wheels.library(dependency)
        if library is None or len(library.sources.paths) > _SMALL:
            return before.version
        between = [
            release for release in wheels.releases(dependency.name)
            if before.key <= release.key and _days(release.day, wheels.day(dependency)) > 0
            and not is_prerelease(release.version) and any(file.wheel for file in release.files)
        ]  # fmt: skip
        low, high = 0, len(between)
        for _ in range(_MAX_SEARCH):
            if high - low < 2 or time.monotonic() > wheels.client.end:
                break
            middle = (low + high) // 2
            is_there = self._has(wheels, Pin(dependency.name, between[middle].version), each)
            low, high = (middle, high) if is_there else (low, middle)
        return between[low].version if between else before.version

    def _archive(self, pin: Pin) -> SourceArchive | None:
        if pin not in self._archives:
            wheels = self._reader()
            release = wheels.release(pin) if wheels else None
            file = next((file for file in release.files if not file.wheel), None) if release else None
            try:
                self._archives[pin] = read_source_archive(wheels.client, file) if wheels and file else None
            except RequestFailed:
                self._archives[pin] = None
        return self._archives[pin]


def _distributions(installed: InstalledSet) -> dict[str, str]:
    """The packages by their top-level module, as far as its name shows it."""
    found = {name.replace("-", "_"): name for name in installed.versions}
    return found | {top: name for top, name in _DISTRIBUTIONS.items() if name in installed.versions}


def _imports_in_order(imports: ModuleImports, user: Pin, tops: frozenset[str]) -> Iterator[tuple[CodeImport, bool]]:
    """The imports of some packages: first those that `import USER` runs, then those of the other modules."""
    own = user.name.replace("-", "_")
    starts = [own] if own in imports.paths else [top for top in sorted(imports.tops) if top in imports.paths]
    loaded = {module for start in starts for module in imports.loaded(start)}
    others = (module for module in imports.modules_that_import(tops) if module not in loaded)
    for modules, is_imported in ((loaded, True), (others, False)):
        for module in modules:
            yield from ((each, is_imported) for each in imports.imports_of(module) if each.top in tops)


def _indexed(release: Release) -> IndexedRelease:
    python = next((file.requires_python for file in release.files if file.requires_python), "")
    has_wheel = any(file.wheel for file in release.files)
    return IndexedRelease(normalize_name(release.package), release.version, release.day, python, has_wheel)


def _indexed_pin(wheels: Wheels, pin: Pin) -> IndexedRelease:
    release = wheels.release(pin)
    return _indexed(release) if release else IndexedRelease(pin.name, pin.version, "")


def _days(first: str, last: str) -> int:
    return (date.fromisoformat(last) - date.fromisoformat(first)).days
