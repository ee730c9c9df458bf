"""The build files of a source archive, and the paths of its Python files; kept in the cache."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator

import msgspec

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import SMALL_FILE_BYTES, read_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.package_index.simple_index import File

ARCHIVE_BYTES = 8 << 20
MEMBER_BYTES = 4 << 20
SOURCES_BYTES = 512 << 20  # of the Python files of an archive
MAX_MEMBERS = 20_000
FOLDER = "source-archives-5"  # increase the number when SourceArchive changes
BUILD_FILES = ("setup.py", "pyproject.toml", "setup.cfg", "PKG-INFO")
_C_CODE = (".c", ".cc", ".cpp", ".cxx", ".pyx", ".cu")
_OWN_MODULE = lazy_pattern(r"\w+(?:/__init__)?\.py")
_MODULE = lazy_pattern(r"(?:/__init__)?\.py$")
REQUIRES = ".egg-info/requires.txt"
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError, ValueError, EOFError,
    RuntimeError,
)  # fmt: skip


class SourceArchive(msgspec.Struct, frozen=True):
    """The content of a source archive below its first folder."""

    name: str
    paths: tuple[str, ...]  # of the Python files
    texts: dict[str, str]  # of the build files, and of the modules that setup.py imports
    has_c_code: bool = False  # C, C++, Cython or CUDA, also in Python files that a build translates
    untranslated: tuple[str, ...] = ()  # Cython files without the C file that Cython makes of them

    def has_module(self, module: str) -> bool:
        """Whether a file or a folder is this module, or a build can make it from C code; also if that is unknown."""
        path = module.replace(".", "/")
        found = (each for each in self.paths if f"/{each}".endswith(f"/{path}.py") or f"/{path}/" in f"/{each}")
        return not self.paths or self.has_c_code or any(found)


# Created here: of a first decoder that several threads create at once, msgspec can leave one incomplete and crash.
_ARCHIVES = msgspec.json.Decoder(SourceArchive)


def read_source_archive(client: HttpClient, file: File) -> SourceArchive:
    """Read an archive from the cache, else from the index. Raises RequestFailed."""
    path = cached_file(FOLDER, file.name, "json", file.url)
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _ARCHIVES.decode(read_file(path, SMALL_FILE_BYTES))
    data = client.get(file.url, limit=ARCHIVE_BYTES).body
    try:
        found = _parse(file.name, data)
    except _BROKEN as error:
        raise RequestFailed(f"{file.name} is not a readable archive: {error or type(error).__name__}") from error
    keep(path, msgspec.json.encode(found))
    return found


def python_files(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """The Python files of an archive by their path below its first folder. Raises RequestFailed."""
    total = 0
    try:
        for path, content in _members(name, data, lambda path: path.endswith(".py")):
            total += len(content or b"")
            if total > SOURCES_BYTES:
                raise RequestFailed(f"the Python files of {name} have more than {SOURCES_BYTES} bytes")
            if content is not None:
                yield path, content.decode("utf-8", "replace")
    except _BROKEN as error:
        raise RequestFailed(f"{name} is not a readable archive: {error or type(error).__name__}") from error


def _parse(name: str, data: bytes) -> SourceArchive:
    paths: list[str] = []
    texts: dict[str, str] = {}
    compiled: list[str] = []
    for path, content in _members(name, data, _is_build_file):
        if path.endswith(_C_CODE):
            compiled.append(path)
        if path.endswith(".py"):
            paths.append(path)
        if content is not None:
            texts[path] = content.decode("utf-8", "replace")
    script = texts.get("setup.py", "")
    texts = {
        path: text for path, text in texts.items()
        if path == "setup.py" or not path.endswith(".py")
        or re.search(rf"^\s*(?:import|from)\s+{re.escape(_MODULE.sub('', path))}\b", script, re.MULTILINE)
    }  # fmt: skip
    translated = {path.rpartition(".")[0] for path in compiled if not path.endswith(".pyx")}
    cython = [path for path in compiled if path.endswith(".pyx")]
    untranslated = tuple(path for path in cython if path.removesuffix(".pyx") not in translated)
    return SourceArchive(name, tuple(paths), texts, bool(compiled), untranslated)


def _is_build_file(path: str) -> bool:
    """Whether a build can read or run a file; setup.py can import modules next to it."""
    return path in BUILD_FILES or path.endswith(REQUIRES) or bool(_OWN_MODULE.fullmatch(path))


def _members(name: str, data: bytes, is_read: Callable[[str], bool]) -> Iterator[tuple[str, bytes | None]]:
    """The paths of the files, each with its content if it is one that is read."""
    return _zip_members(data, is_read) if name.endswith(".zip") else _tar_members(data, is_read)


def _tar_members(data: bytes, is_read: Callable[[str], bool]) -> Iterator[tuple[str, bytes | None]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
        for number, member in enumerate(archive):
            if number == MAX_MEMBERS:
                return
            if member.isfile():
                path = member.name.removeprefix("./").partition("/")[2]
                stream = archive.extractfile(member) if is_read(path) and member.size <= MEMBER_BYTES else None
                yield path, stream.read() if stream else None


def _zip_members(data: bytes, is_read: Callable[[str], bool]) -> Iterator[tuple[str, bytes | None]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist()[:MAX_MEMBERS]:
            path = member.filename.partition("/")[2]
            yield path, archive.read(member) if is_read(path) and member.file_size <= MEMBER_BYTES else None
