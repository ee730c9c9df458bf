"""Reader for the parts of 64-bit little-endian ELF files that the dynamic loader uses, on a memory map.

Offsets and field names follow elf(5) and the System V gABI; `.gnu.hash` follows
https://flapenguin.me/elf-dt-gnu-hash. Any bytes give either a result or an ElfError, in time bounded by their length.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from envdoctor.core.files import open_file

Buffer = mmap.mmap | bytes

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME = 1, 4, 5, 6, 10, 14
DT_RPATH, DT_RUNPATH, DT_GNU_HASH, DT_VERNEED = 15, 29, 0x6FFFFEF5, 0x6FFFFFFE
DT_VERSYM, DT_VERDEF = 0x6FFFFFF0, 0x6FFFFFFC
STB_LOCAL, STB_WEAK = 0, 2
ET_REL = 1
EM_CUDA = 190
VER_FLG_WEAK = 2
MACHINES = {62: "x86_64", 183: "aarch64", 21: "ppc64le", 243: "riscv64"}  # e_machine -> `uname -m`
SYMBOL = struct.Struct("<IBBHQQ")  # st_name, st_info, st_other, st_shndx, st_value, st_size
# Starts of files that packages have next to libraries of Linux: ELF of other word sizes or byte orders, Mach-O, PE.
FOREIGN = re.compile(
    rb"\x7fELF(?!\x02\x01)[\x01\x02]{2}|\xfe\xed\xfa[\xce\xcf]|[\xce\xcf]\xfa\xed\xfe|\xca\xfe\xba\xbe|MZ"
)
LINKER_SCRIPT = re.compile(rb"\A[\s!-~]*\b(?:INPUT|GROUP|OUTPUT_FORMAT)\s*\([\s!-~]*\Z")
MAX_NAME_BYTES = 1 << 16  # of a mangled name; the longest in torch 2.8 has less than 8 KiB
MAX_DYNAMIC_ENTRIES = 1 << 14
MAX_CHAIN = 1 << 16  # symbols of one hash bucket; linkers aim at fewer than ten


class ElfError(Exception):
    """The file is not a readable ELF file; the message gives the reason."""


class ForeignFileError(ElfError):
    """The file is a linker script, or for another platform: no loader of this one opens it, and it is not damaged."""


def reject_foreign(data: Buffer) -> None:
    """Raise ForeignFileError for a file that has no code for this platform."""
    start = data[:1024]
    if FOREIGN.match(start):
        raise ForeignFileError("not a 64-bit little-endian ELF file")
    if LINKER_SCRIPT.match(start):
        raise ForeignFileError("not an ELF file: a linker script")


# What a file with arbitrary numbers raises: an offset of 2**63 is an OverflowError.
DAMAGED = (ElfError, ValueError, LookupError, ArithmeticError, struct.error, MemoryError, BufferError)


@contextmanager
def map_file(path: Path | str) -> Iterator[mmap.mmap]:
    """Map the bytes of a file for the duration of the context; ElfError if it cannot be read.

    Any exception that the numbers in the file cause becomes one: a bad file costs its own row only.
    """
    try:
        with open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except ElfError:
        raise
    except (OSError, *DAMAGED) as error:  # ValueError: an empty file cannot be mapped
        raise ElfError(getattr(error, "strerror", None) or str(error)) from error


@contextmanager
def open_elf(path: Path | str) -> Iterator[Elf]:
    """Open an ELF file, mapped for the duration of the context; ElfError if it is not one or cannot be read."""
    with map_file(path) as data:
        yield Elf(data)


class Elf:
    """A shared object as the loader sees it: program headers and dynamic section, not section headers."""

    def __init__(self, data: Buffer) -> None:
        reject_foreign(data)
        if len(data) < 64 or data[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if data[4:6] != b"\x02\x01":
            raise ElfError("not a 64-bit little-endian ELF file")
        self.data = data
        kind, machine = self._unpack("<HH", 16)
        self.machine = MACHINES.get(machine, "")
        self.is_cubin = machine == EM_CUDA
        self.is_relocatable = kind == ET_REL
        self._segments = list(self._read_segments())
        self._dynamic = self._read_dynamic()

    @property
    def needed(self) -> tuple[str, ...]:
        """DT_NEEDED, in order."""
        return tuple(self._string(value).decode(errors="replace") for value in self._dynamic.get(DT_NEEDED, []))

    @property
    def soname(self) -> str:
        """DT_SONAME, or an empty string."""
        return "".join(self._strings(DT_SONAME))

    @property
    def search_path(self) -> tuple[str, ...]:
        """DT_RUNPATH, otherwise DT_RPATH (which the loader ignores if there is a RUNPATH), unexpanded."""
        entries = self._strings(DT_RUNPATH) or self._strings(DT_RPATH)
        return tuple(part for entry in entries for part in entry.split(":") if part)

    @cached_property
    def glibc(self) -> str:
        """Highest required GLIBC_x.y, as "2.32"; an empty string for none."""
        return highest_version(b"GLIBC", self._needed_versions())

    @cached_property
    def glibcxx(self) -> str:
        """Highest required GLIBCXX_x.y.z, as "3.4.29"; an empty string for none."""
        return highest_version(b"GLIBCXX", self._needed_versions())

    def undefined(self, pattern: re.Pattern[bytes]) -> tuple[str, ...]:
        """Undefined symbols whose name matches, without weak symbols, which may stay undefined."""
        strings, symbols = self._tables
        end = min(self._undefined_end(), (len(self.data) - symbols) // SYMBOL.size)
        table = memoryview(self.data)[symbols : symbols + max(end, 0) * SYMBOL.size]
        found = []
        try:
            for name, info, _, section, _, _ in SYMBOL.iter_unpack(table):
                if section == 0 and info >> 4 != STB_WEAK and pattern.match(self.data, strings + name):
                    found.append(self._string(name).decode(errors="replace"))
        finally:
            table.release()
        return tuple(found)

    @cached_property
    def needed_versions(self) -> dict[str, tuple[str, ...]]:
        """Symbol versions that each needed library must define: {"libc.so.6": ("GLIBC_2.17", "GLIBC_2.32")}."""
        versions_by_library: dict[str, list[str]] = {}
        for library, version, flags, _ in self._version_requirements():
            if not flags & VER_FLG_WEAK:
                name = library.decode(errors="replace")
                versions_by_library.setdefault(name, []).append(version.decode(errors="replace"))
        return {library: tuple(versions) for library, versions in versions_by_library.items()}

    @cached_property
    def defined_versions(self) -> frozenset[str]:
        """Symbol versions that it defines; empty for a library without versions, which the loader accepts."""
        return frozenset(name.decode(errors="replace") for name in self._version_definitions())

    def exported_symbols(self) -> frozenset[bytes]:
        """Every symbol that its dynamic symbol table exports."""
        return frozenset(
            name for name, _, info, section in self._iterate_symbols() if section and info >> 4 != STB_LOCAL
        )

    def required_symbols(self) -> dict[bytes, str]:
        """Undefined symbols without weak ones, each with its required version, or "" for any version."""
        table = self._table_offset(DT_VERSYM)
        versions = {index: version.decode(errors="replace") for _, version, _, index in self._version_requirements()}
        found = {}
        for name, number, info, section in self._iterate_symbols(self._undefined_end()):
            if name and not section and info >> 4 not in (STB_WEAK, STB_LOCAL):
                index = self._unpack("<H", table + number * 2)[0] & 0x7FFF if table is not None else 0
                found[name] = versions.get(index, "")
        return found

    def defines(self, name: str) -> bool:
        """Whether the dynamic symbol table defines a symbol, looked up in its GNU hash table."""
        if self._gnu_hash is None:
            return name.encode() in self._defined
        buckets, first, mask_words, shift, table = self._gnu_hash
        encoded = name.encode()
        digest = gnu_hash(encoded)
        bloom = self._unpack("<Q", table + digest // 64 % mask_words * 8)[0]
        if not (bloom >> digest % 64 & bloom >> (digest >> shift) % 64 & 1):
            return False
        bucket_table = table + mask_words * 8
        index = self._unpack("<I", bucket_table + digest % buckets * 4)[0]
        chains = bucket_table + buckets * 4
        return index >= first and self._chain_has(chains, first, index, digest, encoded)

    def section(self, section_name: str) -> tuple[int, int] | None:
        """Offset and size of a section, from the section headers; None if there is no such section."""
        table, size, count, names = self._unpack("<Q", 40) + self._unpack("<HHH", 58)
        if not table or size < 64 or names >= count:
            return None
        name_table = self._unpack("<Q", table + names * size + 24)[0]
        key = section_name.encode() + b"\0"
        for number in range(count):
            name, kind, _, _, offset, length = self._unpack("<IIQQQQ", table + number * size)
            start = name_table + name
            if kind != 8 and self.data[start : start + len(key)] == key:  # 8: SHT_NOBITS has no bytes in the file
                return offset, max(0, min(length, len(self.data) - offset))
        return None

    def _read_segments(self) -> Iterator[tuple[int, int, int, int]]:
        table, size, count = self._unpack("<Q", 32) + self._unpack("<HH", 54)
        if count and size < 56:
            raise ElfError(f"its program headers have {size} bytes each, not 56")
        if not count and not (self.is_relocatable or self.is_cubin):
            raise ElfError("it has no program headers, so that nothing of it can be loaded")
        for number in range(count):
            kind, _, offset, address, _, length = self._unpack("<IIQQQQ", table + number * size)
            if kind == PT_LOAD and offset + length > len(self.data):
                raise ElfError(f"truncated: it needs {offset + length} bytes and has {len(self.data)}")
            yield kind, offset, address, length

    def _read_dynamic(self) -> dict[int, list[int]]:
        entries: dict[int, list[int]] = {}
        for kind, offset, _, length in self._segments:
            if kind != PT_DYNAMIC:
                continue
            for position in range(offset, offset + min(length, MAX_DYNAMIC_ENTRIES * 16) - 15, 16):
                tag, value = self._unpack("<QQ", position)
                if tag == 0:
                    break
                entries.setdefault(tag, []).append(value)
        return entries

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(form, self.data, offset)
        except (struct.error, OverflowError) as error:
            raise ElfError(f"truncated: it refers to byte {offset} of {len(self.data)}") from error

    def _offset(self, address: int) -> int:
        """The file offset of a virtual address."""
        for kind, offset, start, length in self._segments:
            if kind == PT_LOAD and start <= address < start + length:
                return offset + address - start
        raise ElfError(f"no segment contains address {address:#x}")

    def _table_offset(self, tag: int) -> int | None:
        values = self._dynamic.get(tag)
        return self._offset(values[0]) if values else None

    def _strings(self, tag: int) -> list[str]:
        return [self._string(value).decode(errors="replace") for value in self._dynamic.get(tag, [])[:1]]

    @cached_property
    def _tables(self) -> tuple[int, int]:
        """Offsets of the dynamic string and symbol tables."""
        strings, symbols = self._table_offset(DT_STRTAB), self._table_offset(DT_SYMTAB)
        if strings is None or symbols is None:
            return len(self.data), len(self.data)
        return strings, symbols

    def _string(self, index: int) -> bytes:
        start = self._tables[0] + index
        if start >= len(self.data):
            raise ElfError(f"truncated: a name is at byte {start} of {len(self.data)}")
        end = self.data.find(b"\0", start, start + MAX_NAME_BYTES)
        if end < 0:
            raise ElfError(f"the name at byte {start} has no end")
        return self.data[start:end]

    @cached_property
    def _gnu_hash(self) -> tuple[int, int, int, int, int] | None:
        """Buckets, first hashed symbol, words of the Bloom filter, its shift, and its file offset."""
        position = self._table_offset(DT_GNU_HASH)
        if position is None:
            return None
        buckets, first, mask_words, shift = self._unpack("<IIII", position)
        return (buckets, first, mask_words, shift, position + 16) if buckets and mask_words else None

    def _chain_has(self, chains: int, first: int, index: int, digest: int, encoded: bytes) -> bool:
        strings, symbols = self._tables
        for _ in range(MAX_CHAIN):
            found = self._unpack("<I", chains + (index - first) * 4)[0]
            if found | 1 == digest | 1:
                name = strings + self._unpack("<I", symbols + index * SYMBOL.size)[0]
                if self.data[name : name + len(encoded) + 1] == encoded + b"\0":
                    return True
            if found & 1:
                break
            index += 1
        return False

    @cached_property
    def _defined(self) -> frozenset[bytes]:
        """All defined symbols, for the rare file without a GNU hash table."""
        strings, symbols = self._tables
        names = set()
        for number in range(min(self._symbol_count(), (len(self.data) - symbols) // SYMBOL.size)):
            name, _, _, section, _, _ = self._symbol(symbols, number)
            if section and strings + name < len(self.data):
                names.add(self._string(name))
        return frozenset(names)

    def _iterate_symbols(self, end: int | None = None) -> Iterator[tuple[bytes, int, int, int]]:
        """Name, number, st_info and st_shndx of each dynamic symbol below number `end`."""
        strings, symbols = self._tables
        count = min(self._symbol_count() if end is None else end, (len(self.data) - symbols) // SYMBOL.size)
        table = self.data[symbols : symbols + max(count, 0) * SYMBOL.size]
        size = self._dynamic.get(DT_STRSZ, [0])[0]
        text = self.data[strings : strings + size]
        for number, (name, info, _, section, _, _) in enumerate(SYMBOL.iter_unpack(table)):
            stop = text.find(b"\0", name, name + MAX_NAME_BYTES)
            if stop >= 0:
                yield text[name:stop], number, info, section

    def _symbol(self, symbols: int, number: int) -> tuple[int, ...]:
        return self._unpack(SYMBOL.format, symbols + number * SYMBOL.size)

    def _undefined_end(self) -> int:
        """Upper bound of undefined symbols, which precede the first hashed symbol. `first` is 1 if none is hashed."""
        if self._gnu_hash and self._gnu_hash[1] > 1:
            return self._gnu_hash[1]
        return self._symbol_count()

    def _symbol_count(self) -> int:
        """Number of symbols. It is in the SysV hash table and the section header, not in the dynamic section."""
        position = self._table_offset(DT_HASH)
        if position is not None:
            return self._unpack("<II", position)[1]
        found = self.section(".dynsym")
        return found[1] // SYMBOL.size if found else 0

    def _needed_versions(self) -> Iterator[bytes]:
        """Names of the required symbol versions: `GLIBC_2.17`, `GLIBCXX_3.4.29`."""
        return (version for _, version, _, _ in self._version_requirements())

    def _version_requirements(self) -> Iterator[tuple[bytes, bytes, int, int]]:
        """Library, symbol version, flags and index (vna_other) of each required version."""
        position = self._table_offset(DT_VERNEED)
        steps = 0
        while position is not None and steps < MAX_DYNAMIC_ENTRIES:
            _, count, library, first, following = self._unpack("<HHIII", position)
            entry = position + first
            for _ in range(count):
                steps += 1
                _, flags, index, name, step = self._unpack("<IHHII", entry)
                yield self._string(library), self._string(name), flags, index
                if not step or steps >= MAX_DYNAMIC_ENTRIES:
                    break
                entry += step
            steps += 1
            position = position + following if following else None

    def _version_definitions(self) -> Iterator[bytes]:
        """Names of the defined symbol versions."""
        position = self._table_offset(DT_VERDEF)
        steps = 0
        while position is not None and steps < MAX_DYNAMIC_ENTRIES:
            steps += 1
            _, _, _, count, _, first, following = self._unpack("<HHHHIII", position)
            if count:
                yield self._string(self._unpack("<I", position + first)[0])
            position = position + following if following else None


def highest_version(family: bytes, names: Iterable[bytes]) -> str:
    """The highest number of a family of symbol versions: "2.32" for `GLIBC_2.17` and `GLIBC_2.32`."""
    form = re.compile(rb"%b_(\d{1,4}(?:\.\d{1,4})+)" % family)
    numbers = [tuple(map(int, found[1].split(b"."))) for name in names if (found := form.fullmatch(name))]
    return ".".join(map(str, max(numbers))) if numbers else ""


def gnu_hash(name: bytes) -> int:
    """Hash of a symbol name in `.gnu.hash` (h * 33 + c): b"printf" gives 0x156b2bb8."""
    digest = 5381
    for letter in name:
        digest = (digest * 33 + letter) & 0xFFFFFFFF
    return digest
