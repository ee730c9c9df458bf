"""Releases, imports and build files as the package index has them, for the rules on guides."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from packaging.tags import Tag

from envdoctor.core.errors import EnvdoctorError
from envdoctor.download.http_client import RequestFailed, new_http_client
from envdoctor.download.sources import Sources
from envdoctor.forecast.absent_imports import absent_imports
from envdoctor.forecast.absent_members import absent_members
from envdoctor.forecast.absent_programs import absent_programs
from envdoctor.forecast.asserted_releases import rejected_releases
from envdoctor.forecast.module_imports import ModuleImports
from envdoctor.forecast.module_packages import absent_modules, modules_of_releases
from envdoctor.forecast.removed_imports import removed_imports, removed_torch_imports
from envdoctor.forecast.repositories import REPOSITORY, repositories
from envdoctor.forecast.required_packages import required_packages, specifiers_of
from envdoctor.forecast.set_contents import numpy_1_builds, refused_releases, refused_versions, shared_files
from envdoctor.forecast.set_names import SetNames
from envdoctor.forecast.undeclared_imports import undeclared_imports
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import dotted_numbers, is_prerelease, newest_patch
from envdoctor.locking.lock import Target
from envdoctor.locking.resolve import wheel_tags
from envdoctor.package_index.address import index_address
from envdoctor.package_index.build_failures import build_files_of, failures_of_build
from envdoctor.package_index.build_needs import missing_build_modules, needs_compiler, needs_rust, source_requires
from envdoctor.package_index.releases import Release
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.source_archive import SourceArchive, read_source_archive
from envdoctor.package_index.wheel_names import summarize_wheels
from envdoctor.resolution.index_facts import (
    AbsentImport,
    AbsentMember,
    AbsentProgram,
    BuildFailure,
    BuildFiles,
    BuildImport,
    CodeImport,
    ComparedNames,
    IndexedRelease,
    InheritedMember,
    InstalledSet,
    Numpy1Build,
    RefusedRelease,
    RejectedRelease,
    RemovedImport,
    RustBuild,
    SharedFile,
    UndeclaredImport,
)

TOTAL_SECONDS = 30.0  # of all questions of a command
SET_SECONDS = 10.0  # of one question
_GLIBC = "2.35"  # of Ubuntu 22.04
_MAX_BUILDS = 4  # releases whose source archives are read


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
        self._names: dict[int, SetNames] = {}
        self._imports: dict[File, ModuleImports] = {}
        self._archives: dict[Pin, SourceArchive | None] = {}

    def apart(self) -> IndexReader:
        """A reader that shares what was read, with limits of its own."""
        other = copy(self)
        other._left = TOTAL_SECONDS  # noqa: SLF001  its own class
        return other

    @_limited
    def newest_release(self, name: str) -> IndexedRelease | None:
        """The newest release that is not withdrawn; None if it is unknown."""
        usable = self._usable(name)
        return _indexed(usable[-1]) if usable else None

    def _usable(self, name: str) -> list[Release]:
        return [each for each in self._releases(name) if not each.is_yanked and not is_prerelease(each.version)]

    @_limited
    def usable_releases(self, name: str) -> Sequence[IndexedRelease]:
        """The releases that are neither withdrawn nor pre-releases; none if they are unknown."""
        return [_indexed(each) for each in self._usable(name)]

    @_limited
    def release(self, name: str, version: str) -> IndexedRelease | None:
        """A release; None if it is unknown."""
        found = self._release(name, version)
        return _indexed(found) if found else None

    @_limited
    def published(self, name: str, version: str) -> PublishedRelease | None:
        """A release with the Pythons and platforms of its wheels, as in the built-in table; None if it is unknown."""
        found = self._release(name, version)
        if found is None:
            return None
        kind, pythons, glibc = summarize_wheels(file.wheel for file in found.files)
        return PublishedRelease(found.version, found.day, kind, pythons, dict(glibc), found.is_yanked)

    @_limited
    def is_published_from(self, name: str, url: str) -> bool | None:
        """Whether the newest release of a package, or its first one, names this repository: projects move."""
        repository, wheels = REPOSITORY.search(url), self._reader()
        with_wheel = [each for each in self._usable(name) if any(file.wheel for file in each.files)]
        if repository is None or wheels is None or not with_wheel:
            return None
        named: set[str] = set()
        for release in dict.fromkeys((with_wheel[-1].version, with_wheel[0].version)):
            metadata = wheels.metadata(Pin(name, release))
            named |= repositories(metadata.urls if metadata else ())
            if repository[1].lower() in named:
                return True
        return False if named else None

    @_limited
    def build_imports(self, name: str, version: str, python: str) -> Sequence[BuildImport]:
        """The modules that an isolated build of a release lacks."""
        release, archive = self._release(name, version), self._archive(Pin(name, version))
        if release is None or archive is None:
            return ()
        found = missing_build_modules(archive, python)
        is_legacy = "pyproject.toml" not in archive.texts
        return tuple(BuildImport(_indexed(release), module, line, archive.name, is_legacy) for module, line in found)

    @_limited
    def build_failures(self, name: str, version: str, python: str) -> Sequence[BuildFailure]:
        """The reasons for which the build of a release fails with today's build tools."""
        release, archive = self._release(name, version), self._archive(Pin(name, version))
        if release is None or archive is None:
            return ()
        return tuple(
            BuildFailure(_indexed(release), archive.name, *each) for each in failures_of_build(archive, python)
        )

    @_limited
    def build_files(self, name: str, version: str) -> BuildFiles | None:
        """The build files of a release; None if its source archive is not read, or is too large."""
        archive = self._archive(Pin(name, version))
        return build_files_of(archive) if archive else None

    @_limited
    def buildable_release(self, name: str, python: str, platform: str) -> IndexedRelease | None:
        """The newest release with a wheel for this Python, or with a build that does not fail; None without one."""
        for release in reversed(self._usable(name)[-_MAX_BUILDS:]):
            published, archive = self.published(name, release.version), self._archive(Pin(name, release.version))
            is_built = (
                archive and not failures_of_build(archive, python) and not missing_build_modules(archive, python)
            )
            has_file = is_built or (published and published.has_wheel(platform, python))
            if has_file and release.fits_python(newest_patch(python)):
                return _indexed(release)
        return None

    @_limited
    def requires(self, name: str, version: str) -> Sequence[str]:
        """The requirements of a release, with markers: of its wheel, else as its source archive lists them."""
        pin, wheels, release = Pin(name, version), self._reader(), self._release(name, version)
        if wheels and release and any(file.wheel for file in release.files):
            metadata = wheels.metadata(pin)
            return metadata.requires if metadata else ()
        archive = self._archive(pin) if release else None
        return source_requires(archive) if archive else ()

    @_limited
    def compiled_archive(self, name: str, version: str) -> str:
        """The source archive of a release whose build compiles C code; empty for others."""
        archive = self._archive(Pin(name, version))
        return archive.name if archive and needs_compiler(archive) else ""

    @_limited
    def rust_build(self, name: str, version: str, platform: str) -> RustBuild | None:
        """The build of a release that compiles Rust code; None for others."""
        release, archive = self._release(name, version), self._archive(Pin(name, version))
        if archive is None or release is None or not needs_rust(archive):
            return None
        names = [file.name for file in release.files if file.wheel and file.name.endswith(f"_{platform}.whl")]
        tags = {f"{found[1]}.{found[2]}" for each in names if (found := re.search(r"-cp(3)(\d+)-", each))}
        return RustBuild(archive.name, sorted(tags, key=dotted_numbers, reverse=True))

    def missing_names(self, installed: InstalledSet) -> ComparedNames:
        """The names that packages use of newer releases of others, which no longer have them.

        The number of packages limits it, not the time: another run has the same result.
        """
        names = self._names_of(installed)
        found = names.compare(installed) if names else ComparedNames()
        if names:
            names.keep_imports()
        return found

    def rejected_releases(self, installed: InstalledSet) -> Sequence[RejectedRelease]:
        """The releases that another release of the set rejects when it is imported."""
        return self._of_set(rejected_releases, installed)

    def numpy_1_builds(self, installed: InstalledSet) -> Sequence[Numpy1Build]:
        """The packages of the set with compiled modules that NumPy 2 rejects."""
        return self._of_set(numpy_1_builds, installed)

    def refused_releases(self, installed: InstalledSet) -> Sequence[RefusedRelease]:
        """The named packages of the set whose metadata pip refuses."""
        return self._of_set(refused_releases, installed)

    @_limited
    def refused_versions(self, versions: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
        """Of the packages whose metadata pip refuses: this release and older ones, each with such a requirement."""
        wheels = self._reader()
        return refused_versions(wheels, versions) if wheels else {}

    def shared_files(self, installed: InstalledSet) -> Sequence[SharedFile]:
        """The packages of the set that install the same module."""
        return self._of_set(shared_files, installed)

    def imports_package(self, installed: InstalledSet, requiring: str, name: str) -> bool | None:
        """Whether the modules of one package of the set import another one; None if they could not be read."""

        def modules(names: SetNames, installed: InstalledSet) -> Iterator[ModuleImports | None]:
            pins = [Pin(each, installed.versions[each]) for each in (requiring, name) if each in installed.versions]
            yield from map(names.module_imports, pins)

        first, second = [*self._of_set(modules, installed), None, None][:2]
        return None if first is None or second is None else not second.tops.isdisjoint(first.external_tops())

    def imports_module(self, installed: InstalledSet, requiring: str, module: str) -> bool | None:
        """Whether a package of the set imports a module or one above it; None if it could not be read."""

        def imported(names: SetNames, installed: InstalledSet) -> Iterator[bool]:
            version = installed.versions.get(requiring)
            if found := names.module_imports(Pin(requiring, version)) if version else None:
                yield found.names_module(module)

        return next(iter(self._of_set(imported, installed)), None)

    def _of_set(self, find: Callable[[SetNames, InstalledSet], Iterable[T]], installed: InstalledSet) -> Sequence[T]:
        names = self._names_of(installed)
        if names is None:
            return ()
        names.allow_reading()
        names.wheels.read_releases(installed.versions)
        found = list(find(names, installed))
        names.keep_imports()
        return found

    def _names_of(self, installed: InstalledSet) -> SetNames | None:
        self._end = time.monotonic() + SET_SECONDS
        try:
            wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
            return self._names.setdefault(id(wheels), SetNames(wheels, self._imports)) if wheels else None
        finally:
            self._end = None

    def removed_imports(self, installed: InstalledSet) -> Sequence[RemovedImport]:
        """The old packages of the set that import what the standard library of its Python no longer has."""
        return self._of_set(removed_imports, installed)

    def removed_torch_imports(self, installed: InstalledSet) -> Sequence[RemovedImport]:
        """The old packages of the set that import a module that its torch, torchvision or torchaudio removed."""
        return self._of_set(removed_torch_imports, installed) if installed.torch_family else ()

    def undeclared_imports(self, installed: InstalledSet) -> Sequence[UndeclaredImport]:
        """The modules that old packages of the set import, and that no package of the set has."""
        return self._of_set(undeclared_imports, installed)

    @_limited
    def absent_members(self, installed: InstalledSet, members: Sequence[InheritedMember]) -> Sequence[AbsentMember]:
        """What classes of code expect of their base classes, and the installed releases do not have."""
        wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
        return tuple(absent_members(wheels, installed, members)) if wheels else ()

    @_limited
    def absent_imports(self, installed: InstalledSet, used: Sequence[CodeImport]) -> Sequence[AbsentImport]:
        """The imports of code that the installed releases do not have."""
        wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
        return tuple(absent_imports(wheels, installed, used, self._archive)) if wheels else ()

    @_limited
    def absent_programs(
        self, installed: InstalledSet, programs: Mapping[str, Sequence[str]]
    ) -> Sequence[AbsentProgram]:
        """The programs that no package of the set has, by the packages that can have each."""
        wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
        return tuple(absent_programs(wheels, installed, programs)) if wheels else ()

    @_limited
    def absent_modules(self, installed: InstalledSet, tops: Collection[str]) -> frozenset[str]:
        """The top-level modules that certainly no package of the set has."""
        wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
        if wheels is None:
            return frozenset()
        wheels.read_releases(installed.versions)
        return absent_modules(wheels, [Pin(name, version) for name, version in installed.versions.items()], tops)

    @_limited
    def module_package(self, top: str) -> str:
        """The package with the name of a module, if its newest release has it; empty for others."""
        name, wheels = normalize_name(top), self._reader()
        usable = self._usable(name)
        if wheels is None or not usable:
            return ""
        pin = Pin(name, usable[-1].version)
        return name if top in (modules_of_releases(wheels, [pin])[pin] or ()) else ""

    @_limited
    def required_packages(self, named: Mapping[str, str]) -> Mapping[str, str] | None:
        """The newest releases that packages can bring, with their own; None if they could not be read."""
        wheels = self._reader()
        return required_packages(wheels, named) if wheels else None

    @_limited
    def specifiers_of(self, installed: InstalledSet, package: str) -> Mapping[str, str]:
        """The releases of the set that require a package, each with its specifier for the Python of the set."""
        wheels = self._reader(installed.python, f"{installed.platform} {installed.glibc}")
        return specifiers_of(wheels, installed, package) if wheels else {}

    def _reader(self, python: str = "3.12", platform: str = "x86_64 ") -> Wheels | None:
        """The releases for one Python and platform; None if the index is unreachable or the time is over."""
        if self._is_unreachable or self._end is None or time.monotonic() > self._end:
            return None
        if (python, platform) not in self._readers:
            architecture, _, glibc = platform.partition(" ")
            target = Target(architecture, glibc if re.fullmatch(r"2\.\d+", glibc) else _GLIBC, (python,))
            tags = tuple(wheel_tags(target.platform, python))
            first = next(iter(self._readers.values()), None) or self._first_reader(tags)
            if first is None:
                return None
            self._readers[python, platform] = first.for_tags(tags)
        wheels = self._readers[python, platform]
        wheels.client.end = self._end
        return wheels

    def _first_reader(self, tags: Sequence[Tag]) -> Wheels | None:
        try:
            client = new_http_client(self.sources, end=self._end or 0)
            index = client.store_credentials(index_address(self.sources, "envdoctor audit"))
        except EnvdoctorError:
            self._is_unreachable = True
            return None
        return Wheels(client, index, tags)

    def _releases(self, name: str) -> tuple[Release, ...]:
        wheels = self._reader()
        return wheels.releases(name) if wheels else ()

    def _release(self, name: str, version: str) -> Release | None:
        wheels = self._reader()
        return wheels.release(Pin(name, version)) if wheels and self._releases(name) else None

    def _archive(self, pin: Pin) -> SourceArchive | None:
        if pin not in self._archives:
            wheels, release = self._reader(), self._release(pin.name, pin.version)
            file = next((file for file in release.files if not file.wheel), None) if release else None
            try:
                self._archives[pin] = read_source_archive(wheels.client, file) if wheels and file else None
            except RequestFailed:
                self._archives[pin] = None
        return self._archives[pin]


def _indexed(release: Release) -> IndexedRelease:
    python = next((file.requires_python for file in release.files if file.requires_python), "")
    has_wheel = any(file.wheel for file in release.files)
    return IndexedRelease(normalize_name(release.package), release.version, release.day, python, has_wheel)
