"""What was read in the modules of a wheel, kept in the cache: the wheels of a set have thousands of modules."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import msgspec

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import LISTING_BYTES, read_file
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.version_assertions import AcceptedReleases
from envdoctor.resolution.index_facts import CodeImport

FOLDER = "module-imports-5"  # increase the number when what ModuleImports reads changes


class ParsedModule(msgspec.Struct, frozen=True, array_like=True):
    """The size of a module in characters, and the imports that loading it runs."""

    size: int
    imports: tuple[CodeImport, ...]


class KeptImports(msgspec.Struct, array_like=True):
    """What was read of the modules of a wheel."""

    external: tuple[str, ...] | None = None  # the modules of other packages that the wheel imports
    modules: dict[str, ParsedModule] = {}
    accepted: dict[str, tuple[AcceptedReleases, ...]] = {}  # by file: its assertions on versions
    matching: dict[str, tuple[str, ...]] = {}  # the files that a pattern matches, by the digest of the pattern


def kept_imports(file: File) -> KeptImports:
    """What earlier commands read of a file; empty if nothing."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.msgpack.decode(read_file(_path(file), LISTING_BYTES), type=KeptImports)
    return KeptImports()


def keep_imports(file: File, kept: KeptImports) -> None:
    """Write what was read of a file."""
    keep(_path(file), msgspec.msgpack.encode(kept))


def _path(file: File) -> Path:
    """The address distinguishes files of other indexes; another Python parses other modules."""
    identity = f"{file.url} {sys.version_info.major}.{sys.version_info.minor}"
    return cached_file(FOLDER, file.name, "msgpack", identity)
