"""Tables in compiled files and in the loader's cache, with several entries each."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.binaries.elf import Elf, ElfError, open_elf
from envdoctor.binaries.fatbin import summarise
from envdoctor.binaries.libraries import LOADER_CACHE_MAGIC, parse_loader_cache
from envdoctor.binaries.objects import archive_members, cubin_architecture

LIBC = next((Path(folder, "libc.so.6") for folder in ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64")
             if Path(folder, "libc.so.6").exists()), None)  # fmt: skip


@pytest.mark.skipif(LIBC is None, reason="no glibc in a usual folder")
def test_every_exported_symbol_of_libc_is_found_in_its_hash_table() -> None:
    assert LIBC is not None
    with open_elf(LIBC) as elf:
        names = sorted(name.decode() for name in elf.exported_symbols())[::7]
        assert len(names) > 200
        assert [name for name in names if not elf.defines(name)] == []
        assert [name for name in names if elf.defines(f"{name}-not-defined")] == []
        assert "GLIBC_2.17" in elf.defined_versions


@pytest.mark.skipif(LIBC is None, reason="no glibc in a usual folder")
def test_required_symbols_have_their_versions() -> None:
    assert LIBC is not None
    with open_elf(LIBC.with_name("libm.so.6")) as elf:
        versions = elf.required_symbols()
    assert "GLIBC_2.2.5" in versions.values() or "GLIBC_2.17" in versions.values()
    assert all(version.startswith("GLIBC_") for version in versions.values())


def loader_cache(*entries: tuple[str, str]) -> bytes:
    strings, offset, rows = b"", 48 + 24 * len(entries), b""
    for name, path in entries:
        rows += struct.pack("<III12s", 0, offset + len(strings), offset + len(strings) + len(name) + 1, b"")
        strings += name.encode() + b"\0" + path.encode() + b"\0"
    return LOADER_CACHE_MAGIC.ljust(20, b"\0")[:20] + struct.pack("<I", len(entries)) + b"\0" * 24 + rows + strings


def test_the_first_of_two_libraries_with_one_name_is_loaded() -> None:
    cache = loader_cache(("a.so.1", "/x/a.so.1"), ("b.so", "/x/b.so"), ("a.so.1", "/y/a.so.1"))
    assert parse_loader_cache(b"older table" + cache) == {"a.so.1": "/x/a.so.1", "b.so": "/x/b.so"}
    assert parse_loader_cache(cache[:47]) == {}
    assert parse_loader_cache(loader_cache()) == {}


def member(content: bytes) -> bytes:
    header = b"name/".ljust(48) + str(len(content)).encode().ljust(10) + b"`\n"
    return header + content + b"\n" * (len(content) % 2)


def test_members_of_an_archive_begin_at_even_offsets() -> None:
    objects = [b"\x7fELFodd", b"\x7fELFeven", b"text", b"\x7fELF"]
    archive = b"!<arch>\n" + b"".join(map(member, objects))
    assert list(archive_members(archive)) == [each for each in objects if each.startswith(b"\x7fELF")]
    with pytest.raises(ElfError, match="the member at byte 8 extends past the end"):
        list(archive_members((b"!<arch>\n" + member(b"\x7fELFeven"))[:-1]))


@each_case(
    ("abi", "flags", "name"),
    [
        (7, 80, "sm_80"), (7, 80 | 0x800, "sm_80a"), (8, 90 << 8, "sm_90"), (8, 90 << 8 | 8, "sm_90a"),
        (9, 120 << 8, "sm_120"),
    ],
)  # fmt: skip
def test_the_architecture_of_a_cubin(abi: int, flags: int, name: str) -> None:
    head = bytearray(64)
    head[:6], head[8] = b"\x7fELF\x02\x01", abi
    struct.pack_into("<HH", head, 16, 2, 190)  # an executable for EM_CUDA
    struct.pack_into("<I", head, 48, flags)
    assert cubin_architecture(Elf(bytes(head))) == name


def test_code_of_several_containers() -> None:
    code = summarise([(("sm_80", 0, 0), ("compute_90", 8, 4)), (("sm_80", 0, 0),), (("compute_90", 8, 6),), ()])
    assert code is not None
    assert (code.native, code.ptx, code.ptx_isa, code.ptx_only) == (("sm_80",), ("compute_90",), "8.6", True)
    assert code.containers == {"sm_80 compute_90": 1, "sm_80": 1, "compute_90": 1}
    native = summarise([(("sm_80", 0, 0),)])
    assert native is not None
    assert (native.ptx_isa, native.ptx_only) == ("", False)
    assert summarise([()]) is None
