"""The members of one release of a library on an index, kept in the cache: a table has hundreds of releases."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envdoctor.core.directories import cache_directory
from envdoctor.core.files import LISTING_BYTES, read_file, write_whole
from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.knowledge_check.comparison import select_wheel
from envdoctor.knowledge_check.library_members import Members, read_members
from envdoctor.package_index.releases import Release
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.source_archive import python_files
from envdoctor.package_index.wheel_sources import read_wheel_sources

FOLDER = "library-members-2"  # increase the number when Members or what it is read from changes
ARCHIVE_BYTES = 64 << 20


def file_of(release: Release) -> File:
    """The wheel of a release, else its source archive. Raises RequestFailed."""
    archives = (file for file in release.files if file.name.endswith(".tar.gz"))
    file = select_wheel(release.files) or next(archives, None)
    if file is None:
        raise RequestFailed(f"{release.package} {release.version} has neither a wheel nor a .tar.gz archive")
    return file


def read_release_members(client: HttpClient, release: Release, module: str) -> Members:
    """Read the members of a module from the cache, else from the index. Raises RequestFailed."""
    file = file_of(release)
    address = hashlib.sha256(f"{module} {file.url}".encode()).hexdigest()[:12]
    path = cache_directory() / FOLDER / f"{file.name}-{address}.msgpack.z"
    with contextlib.suppress(OSError, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.msgpack.decode(_decompress(read_file(path, LISTING_BYTES)), type=Members)
    prefix = f"{module}/"
    files = ((name.removeprefix(prefix), text) for name, text in _read_files(client, file) if name.startswith(prefix))
    members = read_members(module, files)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, zlib.compress(msgspec.msgpack.encode(members)), replace=True)
    return members


def _decompress(data: bytes) -> bytes:
    return zlib.decompressobj().decompress(data, LISTING_BYTES)


def _read_files(client: HttpClient, file: File) -> Iterator[tuple[str, str]]:
    """The Python files of a wheel or a source archive."""
    if file.wheel:
        with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:  # members are kept instead of sources
            sources = read_wheel_sources(client, file, Path(folder))
            yield from ((path, sources.read(path)) for path in sources.paths)
    else:
        yield from python_files(file.name, client.get(file.url, limit=ARCHIVE_BYTES).body)
