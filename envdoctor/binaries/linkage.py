"""What the dynamic loader would make of a compiled file: every library, symbol version and symbol that it asks for.

A name is looked up as ld.so(8) does: in the program (Python), in the file itself, then breadth-first in the
libraries that it needs. Libraries of the environment come first by name: torch and the packages load their own by
full path, and the loader takes a library that is loaded already.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from envdoctor.binaries.elf import Elf, ElfError, open_elf
from envdoctor.binaries.libraries import CACHE_FILE, DRIVER, MAGIC, expand
from envdoctor.core.paths import exists, is_file

# What the driver's libraries define: libcuda's cuInit and NVML's nvmlInit_v2. Where they are absent nobody can look.
DRIVER_SYMBOL = re.compile(rb"cu[A-Z]|nvml[A-Z]|__cu(da)?_?[A-Z]|Nv[A-Z]|cuvid|nvcuvid")
SEARCHED = 64  # libraries of one closure; torch's has 30


class Library(NamedTuple):
    """One library as far as others need it."""

    path: str
    machine: str
    needed: tuple[str, ...]
    search_path: tuple[str, ...]
    needed_versions: dict[str, tuple[str, ...]]
    defined_versions: frozenset[str]


class Unmet(NamedTuple):
    """What a file asks for and does not get."""

    libraries: tuple[str, ...] = ()
    versions: tuple[tuple[str, str, str], ...] = ()  # library, version, the file that was found for it
    symbols: tuple[str, ...] = ()  # that nothing defines
    elsewhere: tuple[tuple[str, str], ...] = ()  # symbol, and a file that defines it but is not linked


class Linkage:
    """The libraries of one environment, each read once.

    `provided`: path by name of the environment's compiled files; `interpreter`: the Python program, or "".
    """

    def __init__(
        self, provided: Mapping[str, str], folders: Iterable[Path], environ: Mapping[str, str], interpreter: str
    ) -> None:
        self._provided = provided
        named = [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
        self._folders = [*named, *folders]
        self._interpreter = os.path.realpath(interpreter) if interpreter else ""
        self._read: dict[str, Library | None] = {}
        self._closures: dict[str, list[Library]] = {}
        self._exports: dict[str, frozenset[bytes]] = {}

    def unmet(self, path: str) -> Unmet:
        """What a file asks for in vain; ElfError where it cannot be read."""
        with open_elf(path) as elf:
            wanted = elf.wanted()
            own = _describe(path, elf)
        found = {name: self._find(name, path, own.search_path) for name in own.needed}
        missing = tuple(name for name, place in found.items() if not place and not DRIVER.fullmatch(name))
        versions = tuple(self._missing_versions(own, found))
        driver = any(not place and DRIVER.fullmatch(name) for name, place in found.items())
        left = {name for name in wanted if not (driver and DRIVER_SYMBOL.match(name))}
        for library in (*self._closure(self._interpreter), *self._closures_of(found.values())):
            left = left - self._exported(library.path)  # `-=` would walk the larger set
        if missing or versions:  # what a library that is not there would have defined cannot be known
            left = set()
        placed = {name: self._definer(name) for name in left}
        return Unmet(
            missing,
            versions,
            tuple(sorted(name.decode(errors="replace") for name, place in placed.items() if not place)),
            tuple(sorted((name.decode(errors="replace"), place) for name, place in placed.items() if place)),
        )

    def _missing_versions(self, own: Library, found: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        for name, versions in own.needed_versions.items():
            place = found.get(name) or self._find(name, own.path, own.search_path)
            library = self._library(place) if place else None
            if library and library.defined_versions:  # the loader lets a library without versions pass
                yield from ((name, v, place) for v in versions if v not in library.defined_versions)

    def _definer(self, name: bytes) -> str:
        """A file of the environment that defines a name; empty for none."""
        for path in self._definitions:
            library = self._library(path)
            if library and name in self._exported(path):
                return path
        return ""

    @cached_property
    def _definitions(self) -> list[str]:
        """Files worth asking for a name that a file does not link to: libraries, not Python's extension modules."""
        return [path for name, path in self._provided.items() if name.startswith("lib") and is_file(path)]

    def _closures_of(self, paths: Iterable[str]) -> Iterator[Library]:
        for path in paths:
            yield from self._closure(path)

    def _closure(self, path: str) -> list[Library]:
        """A library and all that it needs, breadth-first."""
        if path not in self._closures:
            order: dict[str, Library] = {}
            waiting = [path]
            while waiting and len(order) < SEARCHED:
                place = waiting.pop(0)
                library = self._library(place) if place and place not in order else None
                if library:
                    order[place] = library
                    waiting += [self._find(name, place, library.search_path) for name in library.needed]
            self._closures[path] = list(order.values())
        return self._closures[path]

    def _exported(self, path: str) -> frozenset[bytes]:
        """What a library defines: read only once somebody asks for a symbol."""
        if path not in self._exports:
            try:
                with open_elf(path) as elf:
                    self._exports[path] = elf.exported()
            except ElfError:
                self._exports[path] = frozenset()
        return self._exports[path]

    def _library(self, path: str) -> Library | None:
        if path not in self._read:
            try:
                with open_elf(path) as elf:
                    self._read[path] = _describe(path, elf)
            except ElfError:
                self._read[path] = None
        return self._read[path]

    def _find(self, name: str, origin: str, search_path: Iterable[str]) -> str:
        """The path that a needed library is loaded from; empty where there is none."""
        if "/" in name:
            return name if exists(name) else ""
        beside = (str(Path(expand(entry, Path(origin).parent), name)) for entry in search_path)
        near = next((path for path in beside if is_file(path)), "")
        return near or self._provided.get(name, "") or self.find_in_system(name)

    def find_in_system(self, name: str) -> str:
        """The path of a library outside of the environment; empty where there is none."""
        places = (str(folder / name) for folder in self._folders)
        return next((path for path in places if is_file(path)), "") or self._cache.get(name, "")

    @cached_property
    def _cache(self) -> dict[str, str]:
        try:
            with CACHE_FILE.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return parse_cache_paths(data[:])
        except (OSError, ValueError):
            return {}


def parse_cache_paths(data: bytes) -> dict[str, str]:
    """Path by name in an ld.so.cache, of 64-bit libraries; the format is told at `libraries.parse_cache`."""
    start = data.find(MAGIC)
    found: dict[str, str] = {}
    if start < 0 or len(data) < start + 48:
        return found
    count = struct.unpack_from("<I", data, start + 20)[0]
    for number in range(min(count, (len(data) - start - 48) // 24)):
        _, name, path = struct.unpack_from("<III", data, start + 48 + number * 24)
        key, place = (_text(data, start + offset) for offset in (name, path))
        if key and not re.search(r"/(lib32|libx32|i386)\b", place):
            found.setdefault(key, place)
    return found


def _text(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + 4096)
    return data[offset:end].decode(errors="replace") if end > 0 else ""


def _describe(path: str, elf: Elf) -> Library:
    return Library(
        path,
        elf.machine,
        elf.needed,
        elf.search_path,
        elf.needed_versions,
        elf.defined_versions,
    )
