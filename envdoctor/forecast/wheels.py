"""Releases, metadata and Python sources of the packages of a forecast; each is read once, and failures are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import LISTING_BYTES, read_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.parallel import run_parallel
from envdoctor.forecast.records import Unread
from envdoctor.forecast.uses import FileKey, FileUses, Uses, read_uses
from envdoctor.knowledge.versions import Key, version_key
from envdoctor.package_index.python_library import Library
from envdoctor.package_index.releases import Release, read_releases, releases_after
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.wheel_metadata import Metadata, read_metadata, read_programs
from envdoctor.package_index.wheel_sources import WheelSources, read_wheel_sources

USES_FOLDER = "wheel-uses-3"  # increase the number when Uses changes
# Packages of shared libraries, whose few Python files other packages do not import.
LIBRARIES_ONLY = ("nvidia-", "cuda-toolkit")

_POST_RELEASE = lazy_pattern(r"\.?post\d+$")
_PAGE, _METADATA, _SOURCES = "its page on the index", "METADATA", "Python sources"
_PROGRAMS = "entry_points.txt"
K = TypeVar("K")
T = TypeVar("T")


class Pin(NamedTuple):
    """A package with a version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class ReadFiles:
    """The pages and files that were read."""

    def __init__(self) -> None:
        self.releases: dict[str, tuple[Release, ...]] = {}
        self.by_version: dict[str, dict[Key, Release]] = {}
        self.metadata: dict[File, Metadata] = {}
        self.programs: dict[File, frozenset[str]] = {}
        self.sources: dict[File, WheelSources] = {}
        self.libraries: dict[File, Library] = {}


class Wheels:
    """Reads the index. What cannot be read is in `unread`, and counts as unknown everywhere."""

    def __init__(
        self, client: HttpClient, index: str, tags: Iterable[Tag], *, until: str = "", read: ReadFiles | None = None
    ) -> None:
        self.client, self.index, self.until = client, index, until
        self._ranks = {tag: rank for rank, tag in enumerate(tags)}
        self._read = read or ReadFiles()
        self._fitting: dict[Pin, File | None] = {}
        self._uses: dict[Pin, Uses] = {}
        self._files: dict[FileKey, FileUses] = {}
        self._failed: set[tuple[str, str]] = set()  # what could not be read, with its name or address
        self.unread: dict[str, Unread] = {}

    def for_tags(self, tags: Iterable[Tag]) -> Wheels:
        """The same pages and files for another Python or platform: what is read for one is read for all."""
        return Wheels(self.client, self.index, tags, until=self.until, read=self._read)

    def read_releases(self, names: Iterable[str]) -> None:
        """Read the pages of these packages."""
        names = [name for name in names if name not in self._read.releases and (_PAGE, name) not in self._failed]
        found = self._run({name: partial(read_releases, self.client, self.index, name) for name in names}, _PAGE)
        self._read.releases |= {name: releases for name, releases in found.items() if releases is not None}
        self._failed |= {(_PAGE, name) for name, releases in found.items() if releases is None}

    def read_metadata(self, pins: Iterable[Pin]) -> None:
        """Read METADATA of the wheels of these releases."""
        self._read_files(pins, self._read.metadata, read_metadata, _METADATA)

    def programs(self, pin: Pin) -> frozenset[str] | None:
        """The programs that the wheel of a release puts on PATH; None if it could not be read."""
        self._read_files([pin], self._read.programs, read_programs, _PROGRAMS)
        file = self.any_wheel(pin)
        return self._read.programs.get(file) if file else None

    def read_sources(self, pins: Iterable[Pin]) -> None:
        """Read the Python sources of the wheels of these releases."""
        pins = [pin for pin in pins if not pin.name.startswith(LIBRARIES_ONLY)]
        self._read_files(pins, self._read.sources, read_wheel_sources, _SOURCES)

    def _read_files(
        self, pins: Iterable[Pin], done: dict[File, T], read: Callable[[HttpClient, File], T], what: str
    ) -> None:
        files = {pin: file for pin in pins if (file := self.any_wheel(pin)) and file not in done}
        files = {pin: file for pin, file in files.items() if (what, file.url) not in self._failed}
        calls = {pin: partial(read, self.client, file) for pin, file in files.items()}
        for pin, result in self._run(calls, what).items():
            if result is None:
                self._failed.add((what, files[pin].url))
            else:
                done[files[pin]] = result

    def _run(self, calls: Mapping[K, Callable[[], T]], what: str) -> dict[K, T | None]:
        found = run_parallel(calls, end=self.client.end) if calls else {}
        for key, result in found.items():
            if isinstance(result, RequestFailed):
                self.add_unread(str(key), f"{what}: {result.reason}", is_failed=True)
        return {key: None if isinstance(result, RequestFailed) else result for key, result in found.items()}

    def add_unread(self, name: str, reason: str, *, is_failed: bool = False) -> None:
        """Note a part that was not judged."""
        self.unread.setdefault(f"{name}: {reason}", Unread(name, reason, is_failed))

    def releases(self, name: str) -> tuple[Release, ...]:
        """The releases of a package, oldest first; empty if its page could not be read."""
        self.read_releases([name])
        return self._read.releases.get(name, ())

    def newer(self, pin: Pin) -> tuple[Release, ...]:
        """The releases after one, up to the day of the forecast, that this Python and platform can install."""
        after = releases_after(self.releases(pin.name), pin.version, until=self.until)
        locked = self.release(pin)
        if locked and locked.uploaded:  # a fix of an older series is no upgrade
            after = tuple(release for release in after if not release.uploaded or release.uploaded > locked.uploaded)
        return after

    def release(self, pin: Pin) -> Release | None:
        """The release on the index."""
        if pin.name not in self._read.by_version and (releases := self.releases(pin.name)):
            self._read.by_version[pin.name] = {each.key: each for each in reversed(releases)}
        key = version_key(pin.version)
        return self._read.by_version.get(pin.name, {}).get(key) if key else None

    def day(self, pin: Pin) -> str:
        """The day of upload; empty if unknown."""
        found = self.release(pin)
        return found.day if found else ""

    def code_day(self, pin: Pin) -> str:
        """The day of the code: that of the release which a post-release repeats with other metadata."""
        base = _POST_RELEASE.sub("", pin.version)
        days = {self.day(pin), self.day(Pin(pin.name, base)) if base != pin.version else ""}
        return min(filter(None, days), default="")

    def fitting_wheel(self, pin: Pin) -> File | None:
        """The best wheel for this Python and platform; None if there is none."""
        if pin not in self._fitting:
            self._fitting[pin] = self._best_wheel(pin)
        return self._fitting[pin]

    def _best_wheel(self, pin: Pin) -> File | None:
        found = self.release(pin)
        ranked = [(self._rank(file), file) for file in found.files if file.wheel] if found else []
        rank, file = min(ranked, key=lambda each: (each[0], each[1].name), default=(len(self._ranks), None))
        return file if rank < len(self._ranks) else None

    def is_installable(self, pin: Pin) -> bool:
        """Whether a release has a wheel for this Python and platform, or no wheel at all."""
        found = self.release(pin)
        return self.fitting_wheel(pin) is not None or not any(file.wheel for file in (found.files if found else ()))

    def any_wheel(self, pin: Pin) -> File | None:
        """The fitting wheel, else any wheel: its metadata and Python sources are mostly the same."""
        found = self.release(pin)
        wheels = [file for file in found.files if file.wheel] if found else []
        file = self.fitting_wheel(pin) or min(wheels, key=lambda each: each.name, default=None)
        if file is None:
            self.add_unread(str(pin), "it has no wheel on the index")
        return file

    def _rank(self, file: File) -> int:
        try:
            tags = parse_wheel_filename(file.name)[3]
        except (InvalidWheelFilename, ValueError):
            return len(self._ranks)
        return min((self._ranks[tag] for tag in tags if tag in self._ranks), default=len(self._ranks))

    def metadata(self, pin: Pin) -> Metadata | None:
        """METADATA of a release; None if it could not be read."""
        self.read_metadata([pin])
        file = self.any_wheel(pin)
        return self._read.metadata.get(file) if file else None

    def library(self, pin: Pin) -> Library | None:
        """The names in the wheel of a release; None if it could not be read."""
        return self.libraries([pin])[0]

    def libraries(self, pins: Sequence[Pin]) -> list[Library | None]:
        """The names in the wheels of several releases, which are read in parallel; None for those without sources."""
        self.read_sources(pins)
        found = []
        for pin in pins:
            sources, file = self.sources(pin), self.any_wheel(pin)
            if file and sources and file not in self._read.libraries:
                self._read.libraries[file] = Library(sources)
            found.append(self._read.libraries.get(file) if file and sources else None)
        return found

    def sources(self, pin: Pin) -> WheelSources | None:
        """The Python sources of a release; None if they could not be read."""
        self.read_sources([pin])
        file = self.any_wheel(pin)
        return self._read.sources.get(file) if file else None

    def is_unreadable(self, pin: Pin) -> bool:
        """Whether the Python sources of a release could not be read."""
        file = self.any_wheel(pin)
        return file is not None and (_SOURCES, file.url) in self._failed

    def tops(self, pin: Pin) -> frozenset[str]:
        """The top-level modules of a release."""
        library = self.library(pin)
        return library.tops if library else frozenset()

    def uses(self, pin: Pin) -> Uses:
        """What a release uses of other packages."""
        if pin not in self._uses:
            self._uses[pin] = self._read_uses(pin)
            for path in self._uses[pin].unparsed:
                self.add_unread(str(pin), f"{path} does not parse as Python")
        return self._uses[pin]

    def _read_uses(self, pin: Pin) -> Uses:
        sources, file = self.sources(pin), self.any_wheel(pin)
        if not sources or not file:
            return Uses()
        path = cached_file(USES_FOLDER, file.name, "msgpack", file.url)
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.msgpack.decode(read_file(path, LISTING_BYTES), type=Uses)
        found = read_uses(sources.paths, sources.read, known=self._files)
        keep(path, msgspec.msgpack.encode(found))
        return found


def is_foreign(path: Path) -> bool:
    """Whether a path below a folder of code is hidden, installed or built."""
    return any(part.startswith(".") or part in ("site-packages", "node_modules", "build") for part in path.parts)


def read_code(folder: Path, wheels: Wheels) -> Uses:
    """What the Python files of a folder use; environments and hidden folders in it are left out."""
    found_files = (path.relative_to(folder) for path in sorted(folder.rglob("*.py")))
    paths = [str(path) for path in found_files if not is_foreign(path)]

    def read(name: str) -> str:
        try:
            return read_file(folder / name, inside=folder).decode("utf-8", "replace")
        except OSError as error:
            wheels.add_unread(name, f"cannot be read: {error.strerror or error}", is_failed=True)
            return ""

    found = read_uses(paths, read, is_user_code=True)
    for name in found.unparsed:
        wheels.add_unread(name, "does not parse as Python", is_failed=True)
    return found
