"""Whether the dynamic loader finds a needed library (ld.so(8)): by name only, starting nothing."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from envdoctor.binaries.elf import highest_version
from envdoctor.core.paths import exists
from envdoctor.core.records import Fact, absent, known, unreadable

CACHE_FILE = Path("/etc/ld.so.cache")
MAGIC = b"glibc-ld.so.cache1.1"
# Of the driver, not of any package: their absence is the machine's affair, and a login node has none.
DRIVER = re.compile(r"lib(cuda|nvcuvid|nvoptix|nvidia-[a-z-]+|cudadebugger|nvidia-ml)\.so(\.\d+)*")


class Loader:
    """The libraries that a process of this environment can load by name.

    `provided`: names of compiled files of the environment itself. All count, since torch loads its CUDA libraries
    before anything that needs them, and packages load their own by full path; the loader takes a library that is
    loaded already by its name.
    """

    def __init__(self, provided: Iterable[str], folders: Iterable[Path], environ: Mapping[str, str]) -> None:
        self._provided = set(provided)
        self._folders = [*_named_folders(environ), *folders, *_standard_folders()]
        self._found: dict[str, bool] = {}

    def finds(self, name: str, origin: Path, search_path: Iterable[str]) -> bool:
        """Whether a library is found for a file in the folder `origin` with that RUNPATH or RPATH."""
        if name in self._provided or DRIVER.fullmatch(name) or ("/" in name and exists(name)):
            return True
        return self._finds_anywhere(name) or any(exists(Path(expand(entry, origin), name)) for entry in search_path)

    def _finds_anywhere(self, name: str) -> bool:
        if name not in self._found:
            self._found[name] = name in self._system or any(exists(folder / name) for folder in self._folders)
        return self._found[name]

    @cached_property
    def _system(self) -> frozenset[str]:
        try:
            with CACHE_FILE.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return parse_cache(data[:])
        except (OSError, ValueError):
            return frozenset()


def read_libstdcxx(prefix: Path, kind: str, environ: Mapping[str, str]) -> Fact[str]:
    """The highest GLIBCXX_ version of the libstdc++ that this environment's Python loads.

    LD_LIBRARY_PATH comes first; conda's Python then looks into its own lib folder, every other one into the system's.
    """
    own = [prefix / "lib"] if kind == "conda" else []
    for folder in (*_named_folders(environ), *own, *_standard_folders()):
        path = folder / "libstdc++.so.6"
        if exists(path):
            try:
                found = highest_version(b"GLIBCXX", re.findall(rb"GLIBCXX_[\d.]{3,12}(?=\x00)", path.read_bytes()))
            except OSError as error:
                return unreadable(str(path), str(error.strerror))
            return known(found, str(path)) if found else unreadable(str(path), "no GLIBCXX version in it")
    return absent("libstdc++.so.6", "in none of the folders that the loader looks into")


def expand(entry: str, origin: Path) -> str:
    """A RUNPATH entry with $ORIGIN, $LIB and $PLATFORM filled in."""
    for name, value in (("ORIGIN", str(origin)), ("LIB", "lib64"), ("PLATFORM", os.uname().machine)):
        entry = entry.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return entry


def parse_cache(data: bytes) -> frozenset[str]:
    """Names of the libraries in an ld.so.cache of glibc 2.2 or newer; empty for any other content.

    `glibc-ld.so.cache1.1`, number of entries u32, 24 bytes, entries of 24 bytes (flags, name, path, ...), strings.
    Names are offsets from that magic, which an older table may precede (glibc: sysdeps/generic/dl-cache.h).
    """
    start = data.find(MAGIC)
    names = set()
    if start < 0 or len(data) < start + 48:
        return frozenset()
    count = struct.unpack_from("<I", data, start + 20)[0]
    for number in range(min(count, (len(data) - start - 48) // 24)):
        offset = start + struct.unpack_from("<I", data, start + 48 + number * 24 + 4)[0]
        end = data.find(b"\0", offset, offset + 4096)
        if end > 0:
            names.add(data[offset:end].decode(errors="replace"))
    return frozenset(names)


def _named_folders(environ: Mapping[str, str]) -> list[Path]:
    return [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]


def _standard_folders() -> list[Path]:
    triplet = f"{os.uname().machine}-linux-gnu"
    return [Path(root, name) for root in ("/lib", "/usr/lib") for name in ("", triplet)] + [
        Path("/lib64"),
        Path("/usr/lib64"),
    ]
