"""A compiled file with any numbers in it costs its own row only."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from support.command import envdoctor, envelope
from support.fuzzing import EXAMPLES
from support.sample_environments import (
    add_distribution,
    add_torch,
    compile_with_fatbin,
    fatbin_container,
    fatbin_entry,
    make_venv,
)

from envdoctor.binaries.cache import FileCache
from envdoctor.binaries.elf import ElfError
from envdoctor.binaries.extensions import CompiledPath, read_files
from envdoctor.binaries.objects import read_object

NUMBERS = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, (1 << 64) - 64)


def sample_library(folder: Path) -> bytes:
    """The bytes of a small library with GPU code."""
    container = fatbin_container(fatbin_entry(2, 90), fatbin_entry(1, 80, isa=(8, 5)))
    return compile_with_fatbin(folder / "sample.so", container).read_bytes()


def with_section_offset(data: bytes, offset: int) -> bytes:
    """The library with another file offset for .nv_fatbin."""
    changed = bytearray(data)
    table = struct.unpack_from("<Q", data, 40)[0]
    count, names = struct.unpack_from("<HH", data, 60)
    name_table = struct.unpack_from("<Q", data, table + names * 64 + 24)[0]
    for number in range(count):
        start = name_table + struct.unpack_from("<I", data, table + number * 64)[0]
        if data[start : start + 11] == b".nv_fatbin\0":
            struct.pack_into("<Q", changed, table + number * 64 + 24, offset)
            return bytes(changed)
    raise AssertionError("no .nv_fatbin")


def test_sections_at_any_offset(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    add_torch(site)
    offsets = {f"alpha/bad{number}.so": offset for number, offset in enumerate(NUMBERS)}
    add_distribution(site, "alpha", "1.0", files=(*offsets, "alpha/good.so"))
    library = sample_library(tmp_path)
    (site / "alpha").mkdir()
    (site / "alpha/good.so").write_bytes(library)
    for name, offset in offsets.items():
        (site / name).write_bytes(with_section_offset(library, offset))
        done = envdoctor("archs", site / name, home=tmp_path)
        assert done.returncode in (0, 1, 2), (offset, done.stderr)
    for command in ("check", "abi", "archs", "report"):
        done = envdoctor(command, tmp_path / "venv", "--format", "json", home=tmp_path)
        assert done.returncode in (0, 1, 3), (command, done.stderr)
        if command == "archs":
            data = envelope(done)["data"]
            assert [file["path"] for file in data["files"]] == ["alpha/good.so"]
            assert data["without_gpu_code"] + len(data["unreadable"]) == len(offsets) + 1  # and libc10.so


def test_random_numbers_in_all_tables(tmp_path: Path) -> None:
    data = sample_library(tmp_path)
    generator = random.Random(29)
    table = struct.unpack_from("<Q", data, 40)[0]
    areas = ((16, 64), (64, 64 + 56 * 8), (table, len(data) - 8), (0, len(data) - 8))
    path = tmp_path / "random.so"
    for _ in range(4 * EXAMPLES):
        changed = bytearray(data)
        first, last = generator.choice(areas)
        for _ in range(generator.randint(1, 4)):
            form = generator.choice(["<H", "<I", "<Q"])
            number = generator.choice(NUMBERS) & ((1 << struct.calcsize(form) * 8) - 1)
            struct.pack_into(form, changed, generator.randint(first, last), number)
        path.write_bytes(bytes(changed[: generator.choice((len(changed), generator.randint(0, len(changed))))]))
        read_files([CompiledPath(str(tmp_path), "random.so", "alpha")], FileCache(None))
        try:
            read_object(path)
        except ElfError:
            continue
