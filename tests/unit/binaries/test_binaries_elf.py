"""The ELF reader with compiled libraries and with damaged files."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing import EXAMPLES
from support.sample_environments import compile_library

from envdoctor.binaries.elf import Elf, ElfError, gnu_hash, open_elf
from envdoctor.binaries.fatbin import read_kernel_code

CODE = """
#include <string.h>
extern void required_symbol(void);
extern void weak_symbol(void) __attribute__((weak));
void defined_here(void) { required_symbol(); if (weak_symbol) weak_symbol(); }
void *also_defined(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
"""
ANY_SYMBOL = re.compile(rb"\w+required")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elf")


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_compiled_library(folder: Path, style: str) -> None:
    path = compile_library(
        folder / f"lib{style}.so", CODE, f"-Wl,--hash-style={style}", "-Wl,-soname,libit.so.1",
        "-Wl,-rpath,$ORIGIN/../lib:/opt/lib", "-Wl,--no-as-needed", "-lm",
    )  # fmt: skip
    with open_elf(path) as elf:
        assert elf.soname == "libit.so.1"
        assert elf.search_path == ("$ORIGIN/../lib", "/opt/lib")
        assert elf.needed == ("libm.so.6", "libc.so.6")
        assert re.fullmatch(r"2\.\d+(\.\d+)?", elf.glibc)
        assert elf.undefined(re.compile(rb"required|weak")) == ("required_symbol",)
        assert elf.defines("defined_here")
        assert elf.defines("also_defined")
        assert not elf.defines("required_symbol")
        assert not elf.defines("not_defined")


def test_undefined_symbols_of_a_library_without_definitions(folder: Path) -> None:
    code = "extern int required_symbol; static int *used __attribute__((used)) = &required_symbol;"
    with open_elf(compile_library(folder / "libempty.so", code, "-nostdlib")) as elf:
        assert elf.undefined(re.compile(rb"required")) == ("required_symbol",)
        assert not elf.defines("required_symbol")


def test_gnu_hash() -> None:
    assert gnu_hash(b"printf") == 0x156B2BB8


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"#!/bin/sh\n" * 20, "not an ELF"), (b"\x7fELF\x01\x01" + bytes(90), "not a 64-bit")],
)
def test_other_files_raise_an_error_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(ElfError, match=reason), open_elf(path):
        pass


def test_folder_and_missing_file_raise_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ElfError, match=r"directory|regular"), open_elf(path):
            pass


def read_everything(data: bytes) -> None:
    """Call every method; only ElfError may be raised."""
    try:
        elf = Elf(data)
    except ElfError:
        return
    for read in (
        lambda: elf.needed, lambda: elf.soname, lambda: elf.search_path, lambda: elf.glibc,
        lambda: elf.undefined(ANY_SYMBOL), lambda: elf.defines("defined_here"), lambda: elf.section(".nv_fatbin"),
        lambda: read_kernel_code(elf),
    ):  # fmt: skip
        try:
            read()
        except ElfError:
            continue


@settings(max_examples=3 * EXAMPLES)
@given(st.binary(max_size=4096))
def test_random_bytes_give_a_result_or_an_error(tail: bytes) -> None:
    read_everything(tail)
    read_everything(b"\x7fELF\x02\x01" + tail)


@settings(max_examples=3 * EXAMPLES)
@given(st.data())
def test_damaged_libraries_give_a_result_or_an_error(folder: Path, data: st.DataObject) -> None:
    path = folder / "libdamaged.so"
    content = bytearray(
        path.read_bytes() if path.exists() else compile_library(path, CODE, "-Wl,--no-as-needed", "-lm").read_bytes()
    )
    for _ in range(data.draw(st.integers(0, 6))):
        position = data.draw(st.integers(0, len(content) - 9))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 0xFFFFFFFF, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1))
        struct.pack_into("<Q", content, position, value)
    end = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    read_everything(bytes(content[:end]))
