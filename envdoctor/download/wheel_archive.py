"""Checks a wheel as an archive before it is unpacked: path traversal, hidden and unlisted members."""

from __future__ import annotations

import csv
import io
import lzma
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from packaging.utils import canonicalize_name

RECORD_BYTES = 64 << 20  # RECORD of torch 2.9 has 1.6 MB
UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # files that RECORD need not list (PEP 427)
SCHEMES = ("purelib", "platlib", "headers", "scripts", "data")
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of name and extra field
MAX_LISTED = 5
# Exceptions of zipfile for a damaged or malicious archive: damaged data, an unknown compression or encryption
# (NotImplementedError, RuntimeError), impossible sizes and offsets (OverflowError, MemoryError).
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, ValueError,
                  NotImplementedError, RuntimeError, EOFError, OverflowError, MemoryError)  # fmt: skip


def find_wheel_problems(path: Path) -> Iterator[str]:
    """Yield the problems of a wheel's names and RECORD, each as a phrase. The content is covered by its SHA-256."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            yield from _name_problems(members)
            yield from _header_problems(file, members)
            yield from _layout_problems(path.name, archive, members)
    except (*BROKEN_ARCHIVE, csv.Error) as error:
        yield f"it is not a readable wheel: {error or type(error).__name__}"


def _name_problems(members: list[zipfile.ZipInfo]) -> Iterator[str]:
    for member in members:
        # orig_filename: zipfile cuts `filename` at a null byte, and replaces backslashes on other systems.
        name = member.orig_filename
        parts = name.removesuffix("/").split("/")
        kind = stat.S_IFMT(member.external_attr >> 16)
        if name.startswith("/") or "\\" in name or parts[0].endswith(":"):
            yield f"{name!r} is an absolute path or has a backslash"
        elif ".." in parts:
            yield f"{name!r} leaves its directory with .."
        elif "" in parts or "." in parts or not name.isprintable():
            yield f"{name!r} is not a plain path"
        if kind and kind not in (stat.S_IFREG, stat.S_IFDIR):
            yield f"{name!r} is a {'symbolic link' if kind == stat.S_IFLNK else 'special file'}"
        if member.flag_bits & 1:
            yield f"{name!r} is encrypted"
    for name, count in Counter(member.orig_filename.removesuffix("/") for member in members).items():
        if count > 1:
            yield f"{name!r} occurs {count} times"


def _header_problems(file: BinaryIO, members: list[zipfile.ZipInfo]) -> Iterator[str]:
    """Yield members whose name differs between local header and central directory: installers read either."""
    for member in members:
        file.seek(member.header_offset)
        signature, length, _ = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
        name = file.read(length).decode("utf-8" if member.flag_bits & 0x800 else "cp437")
        if signature != b"PK\x03\x04" or name != member.orig_filename:
            yield f"{member.orig_filename!r} is {name!r} in its local header"


def _layout_problems(wheel: str, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> Iterator[str]:
    names = {member.orig_filename for member in members if not member.orig_filename.endswith("/")}
    folders = {name.split("/")[0] for name in names if "/" in name}
    metadata = sorted(folder for folder in folders if folder.endswith(".dist-info"))
    if len(metadata) != 1 or not _belongs_to(metadata[0], wheel):
        yield f"it has {', '.join(metadata) or 'no .dist-info'}, expected one .dist-info of {wheel}"
        return
    data = [folder for folder in sorted(folders) if folder.endswith(".data")]
    schemes = {name.split("/")[1] for name in names if name.split("/")[0] in data}
    if len(data) > 1 or (data and not _belongs_to(data[0], wheel)) or schemes - set(SCHEMES):
        yield f"{', '.join(data)} contains {', '.join(sorted(schemes))}, expected one .data with {', '.join(SCHEMES)}"
    yield from _record_problems(archive, names, metadata[0])


def _belongs_to(folder: str, wheel: str) -> bool:
    """Whether `a_b-1.0.dist-info` and `a.b-1.0-py3-none-any.whl` have the same package name."""
    return canonicalize_name(folder.split("-", maxsplit=1)[0]) == canonicalize_name(wheel.split("-", maxsplit=1)[0])


def _record_problems(archive: zipfile.ZipFile, names: set[str], metadata: str) -> Iterator[str]:
    record = f"{metadata}/RECORD"
    if record not in names:
        yield "it has no RECORD"
        return
    if archive.getinfo(record).file_size > RECORD_BYTES:
        yield f"its RECORD has more than {RECORD_BYTES} bytes"
        return
    listed = parse_record(archive.read(record).decode("utf-8"))
    for problem, files in (
        ("is not in RECORD", names - listed - {f"{metadata}/{name}" for name in UNLISTED}),
        ("is in RECORD and not in the wheel", listed - names - {f"{metadata}/{name}" for name in UNLISTED}),
    ):
        affected = sorted(files)
        yield from (f"{name!r} {problem}" for name in affected[:MAX_LISTED])
        if len(affected) > MAX_LISTED:
            yield f"and {len(affected) - MAX_LISTED} more {problem.removeprefix('is ')}"


def parse_record(text: str) -> set[str]:
    """Return the files of a RECORD: `msgspec/__init__.py,sha256=47DEQpj8HBSa,123`; names with commas are quoted."""
    return {row[0] for row in csv.reader(io.StringIO(text)) if row}
