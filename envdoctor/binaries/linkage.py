"""Libraries, symbol versions and symbols that the dynamic loader would not find for a compiled file.

Symbols are looked up in the order of ld.so(8): in the program (Python), in the file itself, then breadth-first in the
libraries that it needs. Libraries of the environment take precedence by name: torch and other packages load their own
libraries by full path, and the loader reuses a library that is already loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from envdoctor.binaries.elf import Elf, ElfError, open_elf
from envdoctor.binaries.libraries import DRIVER_LIBRARY, expand, library_path_folders, read_loader_cache
from envdoctor.core.paths import exists, is_file

# Symbols that the driver's libraries define, such as cuInit and nvmlInit_v2. Without a driver they cannot be checked.
DRIVER_SYMBOL = re.compile(rb"cu[A-Z]|nvml[A-Z]|__cu(da)?_?[A-Z]|Nv[A-Z]|cuvid|nvcuvid")
MAX_CLOSURE = 64  # libraries that one file depends on, directly or indirectly; torch has 30


class Library(NamedTuple):
    """The parts of one library that matter for files that link to it."""

    path: str
    needed: tuple[str, ...]
    search_path: tuple[str, ...]
    needed_versions: dict[str, tuple[str, ...]]
    defined_versions: frozenset[str]


class UnresolvedDependencies(NamedTuple):
    """Dependencies of a file that the dynamic loader does not find."""

    libraries: tuple[str, ...] = ()
    versions: tuple[tuple[str, str, str], ...] = ()  # library, version, path of the library that was found
    symbols: tuple[str, ...] = ()  # defined in no file
    unlinked: tuple[tuple[str, str], ...] = ()  # symbol, and a file that defines it but is not linked


class Linkage:
    """The libraries of one environment. Each is read once.

    `provided`: path by name of the environment's compiled files; `interpreter`: the Python program, or "".
    """

    def __init__(
        self, provided: Mapping[str, str], folders: Iterable[Path], environ: Mapping[str, str], interpreter: str
    ) -> None:
        self._provided = provided
        self._folders = [*library_path_folders(environ), *folders]
        self._interpreter = os.path.realpath(interpreter) if interpreter else ""
        self._libraries: dict[str, Library | None] = {}
        self._closures: dict[str, list[Library]] = {}
        self._exports: dict[str, frozenset[bytes]] = {}

    def unresolved(self, path: str) -> UnresolvedDependencies:
        """The unresolved dependencies of a file; ElfError if it cannot be read."""
        with open_elf(path) as elf:
            required = elf.required_symbols()
            own = _describe(path, elf)
        paths = {name: self._find(name, path, own.search_path) for name in own.needed}
        libraries = tuple(
            name for name, library_path in paths.items() if not library_path and not DRIVER_LIBRARY.fullmatch(name)
        )
        versions = tuple(self._missing_versions(own, paths))
        if libraries or versions:  # a missing library might define the remaining symbols
            return UnresolvedDependencies(libraries, versions)
        no_driver = any(not library_path and DRIVER_LIBRARY.fullmatch(name) for name, library_path in paths.items())
        symbols = {name for name in required if not (no_driver and DRIVER_SYMBOL.match(name))}
        closures = (library for library_path in paths.values() for library in self._closure(library_path))
        for library in (*self._closure(self._interpreter), *closures):
            symbols = symbols - self._exported(library.path)  # `-=` would iterate over the larger set
        definitions = {name.decode(errors="replace"): self._defining_file(name) for name in symbols}
        return UnresolvedDependencies(
            symbols=tuple(sorted(name for name, library_path in definitions.items() if not library_path)),
            unlinked=tuple(
                sorted((name, library_path) for name, library_path in definitions.items() if library_path)
            ),
        )

    def _missing_versions(self, own: Library, paths: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        for name, versions in own.needed_versions.items():
            library_path = paths.get(name) or self._find(name, own.path, own.search_path)
            library = self._library(library_path) if library_path else None
            if library and library.defined_versions:  # the loader accepts a library without any versions
                yield from ((name, v, library_path) for v in versions if v not in library.defined_versions)

    def _defining_file(self, symbol: bytes) -> str:
        """A file of the environment that defines a symbol; empty for none."""
        for path in self._shared_libraries:
            if self._library(path) and symbol in self._exported(path):
                return path
        return ""

    @cached_property
    def _shared_libraries(self) -> list[str]:
        """The environment's libraries, without Python's extension modules."""
        return [path for name, path in self._provided.items() if name.startswith("lib") and is_file(path)]

    def _closure(self, path: str) -> list[Library]:
        """A library and all its dependencies, breadth-first."""
        if path not in self._closures:
            order: dict[str, Library] = {}
            queue = [path]
            while queue and len(order) < MAX_CLOSURE:
                library_path = queue.pop(0)
                library = self._library(library_path) if library_path and library_path not in order else None
                if library:
                    order[library_path] = library
                    queue += [self._find(name, library_path, library.search_path) for name in library.needed]
            self._closures[path] = list(order.values())
        return self._closures[path]

    def _exported(self, path: str) -> frozenset[bytes]:
        """The symbols that a library defines, read on first use."""
        if path not in self._exports:
            try:
                with open_elf(path) as elf:
                    self._exports[path] = elf.exported_symbols()
            except ElfError:
                self._exports[path] = frozenset()
        return self._exports[path]

    def _library(self, path: str) -> Library | None:
        if path not in self._libraries:
            try:
                with open_elf(path) as elf:
                    self._libraries[path] = _describe(path, elf)
            except ElfError:
                self._libraries[path] = None
        return self._libraries[path]

    def _find(self, name: str, origin: str, search_path: Iterable[str]) -> str:
        """The path from which the loader loads a needed library; empty if it is not found."""
        if "/" in name:
            return name if exists(name) else ""
        folder = str(Path(origin).parent)
        candidates = (str(Path(expand(entry, folder), name)) for entry in search_path)
        on_search_path = next((path for path in candidates if is_file(path)), "")
        return on_search_path or self._provided.get(name, "") or self.find_system_library(name)

    def find_system_library(self, name: str) -> str:
        """The path of a library outside of the environment; empty if there is none."""
        candidates = (str(folder / name) for folder in self._folders)
        return next((path for path in candidates if is_file(path)), "") or read_loader_cache().get(name, "")


def _describe(path: str, elf: Elf) -> Library:
    return Library(path, elf.needed, elf.search_path, elf.needed_versions, elf.defined_versions)
