"""GPU code of a single file: shared object, object file, archive, cubin or fatbin."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from envdoctor.binaries.elf import Buffer, Elf, ElfError, ForeignFileError, map_file, reject_foreign
from envdoctor.binaries.fatbin import MAGIC, Code, read_containers, scan_containers, summarise
from envdoctor.core.records import KernelCode

ARCHIVE, THIN_ARCHIVE = b"!<arch>\n", b"!<thin>\n"
MAX_MEMBERS = 1 << 16  # of one archive; libcublasLt_static.a has several thousand
ARCH_OPTION = re.compile(rb"-arch[ =](sm_\d+[af]?)\b")


def read_object(path: Path) -> KernelCode | None:
    """GPU code of a file, None if it has none; ElfError if it is not a compiled file or is truncated."""
    with map_file(path) as data:
        return summarise(list(_containers_of(data)))


def _containers_of(data: Buffer) -> Iterator[tuple[Code, ...]]:
    start = bytes(data[:8])
    if start == ARCHIVE:
        for member in archive_members(data):
            yield from _containers_of(member)
    elif start[:4] == MAGIC:
        yield from scan_containers(data, 0, len(data))
    elif start == THIN_ARCHIVE:
        raise ForeignFileError("a thin archive: its members are separate files")
    elif start[:4] != b"\x7fELF":
        reject_foreign(data)
        raise ElfError(f"not a compiled file: it starts with {start[:4]!r}")
    else:
        elf = Elf(data)
        yield from [((cubin_architecture(elf), 0, 0),)] if elf.is_cubin else read_containers(elf)


def archive_members(data: Buffer) -> Iterator[bytes]:
    """Object files in an ar(5) archive: 8 bytes of magic, then members with 60-byte headers on even offsets."""
    offset = len(ARCHIVE)
    for _ in range(MAX_MEMBERS):
        header = data[offset : offset + 60]
        if len(header) < 60:
            return
        size = header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit() or offset + 60 + int(size) > len(data):
            raise ElfError(f"truncated: the member at byte {offset} extends past the end of the file")
        start, offset = offset + 60, offset + 60 + int(size) + int(size) % 2
        if data[start : start + 4] == b"\x7fELF":
            yield data[start : start + int(size)]


def cubin_architecture(elf: Elf) -> str:
    """The architecture of a cubin: "sm_90a".

    It is taken from the assembler's command line in `.note.nv.tkinfo`, otherwise from the flags of the ELF header: up
    to ABI 7 the number is bits 0-7 and "a" is bit 11; from ABI 8, bits 8-15 and bit 3 (llvm/BinaryFormat/ELF.h).
    """
    if section := elf.section(".note.nv.tkinfo"):
        offset, size = section
        if found := ARCH_OPTION.search(elf.data[offset : offset + size]):
            return found[1].decode()
    abi, flags = elf.data[8], struct.unpack_from("<I", elf.data, 48)[0]
    number, specific = (flags >> 8 & 0xFF, flags & 0x8) if abi >= 8 else (flags & 0xFF, flags & 0x800)
    return f"sm_{number}{'a' if specific else ''}"
