"""Whether the dynamic loader finds a needed library (ld.so(8)), by name only and without starting a process."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from envdoctor.binaries.elf import ElfError, highest_version, open_elf
from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Fact, absent, known, unreadable

MACHINE = os.uname().machine
LOADER_CACHE_FILE = Path("/etc/ld.so.cache")
LOADER_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
# Libraries of the driver, which no package provides. A login node without a driver does not have them.
DRIVER_LIBRARY = lazy_pattern(r"lib(cuda|nvcuvid|nvoptix|nvidia-[a-z-]+|cudadebugger|nvidia-ml)\.so(\.\d+)*")
OTHER_ARCHITECTURE = lazy_pattern(r"/(lib32|libx32|i386)\b")


class LibrarySearch:
    """The libraries that a process of this environment can load by name.

    `provided`: names of the compiled files of the environment itself. All of them count as found: torch loads its
    CUDA libraries before anything that needs them, packages load their own libraries by full path, and the loader
    reuses a loaded library by its name.
    """

    def __init__(self, provided: Iterable[str], folders: Iterable[Path], environ: Mapping[str, str]) -> None:
        self._provided = set(provided)
        self._folders = [*library_path_folders(environ), *folders, *_standard_folders()]
        self._found: dict[str, bool] = {}

    def can_find(self, name: str, origin: str, search_path: Iterable[str]) -> bool:
        """Whether a library is found for a file in the directory `origin` with this RUNPATH or RPATH."""
        if name in self._provided or DRIVER_LIBRARY.fullmatch(name) or ("/" in name and exists(name)):
            return True
        if name not in self._found:
            self._found[name] = name in read_loader_cache() or any(exists(folder / name) for folder in self._folders)
        return self._found[name] or any(exists(os.path.join(expand(entry, origin), name)) for entry in search_path)  # noqa: PTH118


def read_libstdcxx(prefix: Path, kind: str, environ: Mapping[str, str]) -> Fact[str]:
    """The highest GLIBCXX_ version of the libstdc++ that this environment's Python loads.

    Order: LD_LIBRARY_PATH, then the lib directory of a conda environment, then the directories of the system.
    """
    conda_folders = [prefix / "lib"] if kind == "conda" else []
    for folder in (*library_path_folders(environ), *conda_folders, *_standard_folders()):
        path = folder / "libstdc++.so.6"
        if exists(path):
            try:
                with open_elf(path) as elf:
                    version = highest_version(b"GLIBCXX", (name.encode() for name in elf.defined_versions))
            except ElfError as error:
                return unreadable(str(path), str(error))
            return known(version, str(path)) if version else unreadable(str(path), "no GLIBCXX version in it")
    return absent("libstdc++.so.6", "in none of the directories that the loader searches")


def expand(entry: str, origin: str) -> str:
    """Expand $ORIGIN, $LIB and $PLATFORM in a RUNPATH entry."""
    for name, value in (("ORIGIN", origin), ("LIB", "lib64"), ("PLATFORM", MACHINE)):
        entry = entry.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return entry


@cache
def read_loader_cache() -> dict[str, str]:
    """Path by name of the libraries in /etc/ld.so.cache; empty if it cannot be read."""
    try:
        with LOADER_CACHE_FILE.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return parse_loader_cache(data[:])
    except (OSError, ValueError):
        return {}


def parse_loader_cache(data: bytes) -> dict[str, str]:
    """Path by name of the 64-bit libraries in an ld.so.cache of glibc 2.2 or newer; empty for any other content.

    `glibc-ld.so.cache1.1`, number of entries u32, 24 bytes, entries of 24 bytes (flags, name, path, ...), strings.
    Names and paths are offsets from that magic, which an older table may precede (glibc: sysdeps/generic/dl-cache.h).
    """
    start = data.find(LOADER_CACHE_MAGIC)
    libraries: dict[str, str] = {}
    if start < 0 or len(data) < start + 48:
        return libraries
    data = data[start:]
    count = min(struct.unpack_from("<I", data, 20)[0], (len(data) - 48) // 24)
    for _, name_offset, path_offset, _ in struct.iter_unpack("<III12s", data[48 : 48 + count * 24]):
        name, path = _string_at(data, name_offset), _string_at(data, path_offset)
        if name and not OTHER_ARCHITECTURE.search(path):
            libraries.setdefault(name, path)
    return libraries


def _string_at(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + 4096)
    return data[offset:end].decode(errors="replace") if end > 0 else ""


def library_path_folders(environ: Mapping[str, str]) -> list[Path]:
    """The directories of LD_LIBRARY_PATH."""
    return [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]


def _standard_folders() -> list[Path]:
    triplet = f"{MACHINE}-linux-gnu"
    return [Path(root, name) for root in ("/lib", "/usr/lib") for name in ("", triplet)] + [
        Path("/lib64"),
        Path("/usr/lib64"),
    ]
