"""A wheel looked into as an archive, before anything unpacks it: members that climb out, hide or are not listed."""

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

RECORD_BYTES = 64 << 20  # that of torch 2.9 has 1.6 MB
UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # which RECORD need not list (PEP 427)
SCHEMES = ("purelib", "platlib", "headers", "scripts", "data")
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of name and extra field
SHOWN = 5
# Exceptions of zipfile for a damaged or malicious archive: damaged data, an unknown compression or encryption
# (NotImplementedError, RuntimeError), impossible sizes and offsets (OverflowError, MemoryError).
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, ValueError,
                  NotImplementedError, RuntimeError, EOFError, OverflowError, MemoryError)  # fmt: skip


def find_wheel_problems(path: Path) -> Iterator[str]:
    """What is wrong with a wheel as an archive, one fault a line; a good one has none.

    Names and RECORD only: that the bytes are the right ones is the sha256's to tell.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            yield from _name_faults(members)
            yield from _hidden_faults(file, members)
            yield from _layout_faults(path.name, archive, members)
    except (*BROKEN_ARCHIVE, csv.Error) as error:
        yield f"it is no wheel that can be read: {error or type(error).__name__}"


def _name_faults(members: list[zipfile.ZipInfo]) -> Iterator[str]:
    for member in members:
        # orig_filename: zipfile itself cuts a name at a null byte and turns backslashes on other systems.
        name = member.orig_filename
        parts = name.removesuffix("/").split("/")
        kind = stat.S_IFMT(member.external_attr >> 16)
        if name.startswith("/") or "\\" in name or parts[0].endswith(":"):
            yield f"{name!r} is an absolute name or has a backslash"
        elif ".." in parts:
            yield f"{name!r} climbs out of its folder"
        elif "" in parts or "." in parts or not name.isprintable():
            yield f"{name!r} is no plain name"
        if kind and kind not in (stat.S_IFREG, stat.S_IFDIR):
            yield f"{name!r} is a {'symbolic link' if kind == stat.S_IFLNK else 'special file'}"
        if member.flag_bits & 1:
            yield f"{name!r} is encrypted"
    for name, times in Counter(member.orig_filename.removesuffix("/") for member in members).items():
        if times > 1:
            yield f"{name!r} is in it {times} times"


def _hidden_faults(file: BinaryIO, members: list[zipfile.ZipInfo]) -> Iterator[str]:
    """Members whose own header has another name than the list at the end: installers differ in which they read."""
    for member in members:
        file.seek(member.header_offset)
        signature, length, _ = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
        name = file.read(length).decode("utf-8" if member.flag_bits & 0x800 else "cp437")
        if signature != b"PK\x03\x04" or name != member.orig_filename:
            yield f"{member.orig_filename!r} is {name!r} in its own header"


def _layout_faults(wheel: str, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> Iterator[str]:
    names = {member.orig_filename for member in members if not member.orig_filename.endswith("/")}
    tops = {name.split("/")[0] for name in names if "/" in name}
    infos = sorted(top for top in tops if top.endswith(".dist-info"))
    if len(infos) != 1 or not _is_of(infos[0], wheel):
        yield f"it has {', '.join(infos) or 'no .dist-info'}, expected one .dist-info of {wheel}"
        return
    data = [top for top in sorted(tops) if top.endswith(".data")]
    schemes = {name.split("/")[1] for name in names if name.split("/")[0] in data}
    if len(data) > 1 or (data and not _is_of(data[0], wheel)) or schemes - set(SCHEMES):
        yield f"{', '.join(data)} holds {', '.join(sorted(schemes))}, expected one .data with {', '.join(SCHEMES)}"
    yield from _record_faults(archive, names, infos[0])


def _is_of(folder: str, wheel: str) -> bool:
    """Whether `a_b-1.0.dist-info` is of `a.b-1.0-py3-none-any.whl`; versions are written in several ways."""
    return canonicalize_name(folder.split("-", maxsplit=1)[0]) == canonicalize_name(wheel.split("-", maxsplit=1)[0])


def _record_faults(archive: zipfile.ZipFile, names: set[str], info: str) -> Iterator[str]:
    record = f"{info}/RECORD"
    if record not in names:
        yield "it has no RECORD"
        return
    if archive.getinfo(record).file_size > RECORD_BYTES:
        yield f"its RECORD has more than {RECORD_BYTES} bytes"
        return
    listed = parse_record(archive.read(record).decode("utf-8"))
    for words, which in (
        ("is not in RECORD", names - listed - {f"{info}/{name}" for name in UNLISTED}),
        ("is in RECORD and not in the wheel", listed - names - {f"{info}/{name}" for name in UNLISTED}),
    ):
        shown = sorted(which)
        yield from (f"{name!r} {words}" for name in shown[:SHOWN])
        if len(shown) > SHOWN:
            yield f"and {len(shown) - SHOWN} more {words.removeprefix('is ')}"


def parse_record(text: str) -> set[str]:
    """The files of a RECORD: `msgspec/__init__.py,sha256=47DEQpj8HBSa,123`, names with commas in quotes."""
    return {row[0] for row in csv.reader(io.StringIO(text)) if row}
