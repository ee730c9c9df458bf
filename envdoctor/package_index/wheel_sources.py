"""The Python sources of a wheel or a source archive, kept in the cache.

Those of a wheel are read with range requests: no other member is requested.
"""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import LISTING_BYTES, read_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.wheel_archive import BROKEN_ARCHIVE
from envdoctor.package_index.remote_wheel import RemoteWheel
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.source_archive import ARCHIVE_BYTES, python_files

WHEEL_BYTES = 96 << 20  # requested of one wheel; the sources of torch 2.13 have 20 MB, compressed
MEMBER_BYTES = 4 << 20
COMPILED_LIST = "compiled.txt"  # of the cached archive
FOLDER = "wheel-sources"
_KEPT = lazy_pattern(r"(?:.+\.py|[^/]+\.dist-info/(?:METADATA|entry_points\.txt))")
_EXTENSION = lazy_pattern(r"(\.[\w-]+)?\.(?:so|pyd)$")  # module.cpython-312-x86_64-linux-gnu.so
_DATA = lazy_pattern(r"[^/]+\.data/(?:purelib|platlib)/")


class WheelSources:
    """The Python files of a wheel by their installed path, and the paths of its compiled modules."""

    def __init__(self, name: str, archive: zipfile.ZipFile) -> None:
        self.name = name
        self._archive = archive
        self._members = {_DATA.sub("", path): path for path in archive.namelist() if path != COMPILED_LIST}
        self.paths = tuple(path for path in self._members if path.endswith(".py"))
        self.compiled = tuple(archive.read(COMPILED_LIST).decode().split())
        self.compiled_modules = frozenset(_EXTENSION.sub("", path).replace("/", ".") for path in self.compiled)

    @property
    def is_archive(self) -> bool:
        """Whether these are the files of a source archive, which an installer does not install as they are."""
        return not self.name.endswith(".whl")

    def read(self, path: str) -> str:
        """The text of a file; bytes that are not UTF-8 are replaced."""
        return self._archive.read(self._members[path]).decode("utf-8", "replace")

    @cached_property
    def entry_points(self) -> str:
        """The text of entry_points.txt; empty if the wheel has none."""
        return next((self.read(path) for path in self._members if path.endswith("/entry_points.txt")), "")


def read_wheel_sources(client: HttpClient, file: File, folder: Path | None = None) -> WheelSources:
    """Read the sources of a wheel from the cache, else from the index. Raises RequestFailed."""
    return _read(client, file, _request, folder)


def read_archive_sources(client: HttpClient, file: File, folder: Path | None = None) -> WheelSources:
    """Read the Python files of a source archive in the same form; its compiled modules are unknown."""
    return _read(client, file, _request_archive, folder)


def _read(
    client: HttpClient, file: File, request: Callable[[HttpClient, File], bytes], folder: Path | None
) -> WheelSources:
    path = cached_file(FOLDER, file.name, "zip", file.url)
    path = folder / path.name if folder else path
    with contextlib.suppress(OSError, *BROKEN_ARCHIVE):
        return _open(file.name, read_file(path, LISTING_BYTES))
    data = request(client, file)
    if len(data) > LISTING_BYTES:
        raise RequestFailed(
            f"the Python sources of {file.name} have {len(data)} bytes, expected at most {LISTING_BYTES}"
        )
    keep(path, data)
    return _open(file.name, data)


def _open(name: str, data: bytes) -> WheelSources:
    return WheelSources(name, zipfile.ZipFile(io.BytesIO(data)))


def _request(client: HttpClient, file: File) -> bytes:
    wheel = RemoteWheel(client, file, limit=WHEEL_BYTES)
    kept = [
        name
        for name, member in wheel.members.items()
        if _KEPT.fullmatch(name) and member.file_size <= MEMBER_BYTES and name.isprintable()
    ]
    wheel.request(kept)
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in kept:
            archive.writestr(name, wheel.read(name, limit=MEMBER_BYTES))
        compiled = (_DATA.sub("", name) for name in wheel.members if name.endswith((".so", ".pyd")))
        archive.writestr(COMPILED_LIST, "\n".join(name for name in compiled if not re.search(r"\s", name)))
    return output.getvalue()


def _request_archive(client: HttpClient, file: File) -> bytes:
    data = client.get(file.url, limit=ARCHIVE_BYTES).body
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in python_files(file.name, data):
            archive.writestr(path.removeprefix("src/"), text)
        archive.writestr(COMPILED_LIST, "")
    return output.getvalue()
