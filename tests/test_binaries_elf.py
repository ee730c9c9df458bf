"""The ELF reader against what the C compiler makes, and against garbage."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_environments import compile_library

from envdoctor.binaries.elf import Elf, ElfError, gnu_hash, open_elf
from envdoctor.binaries.fatbin import read_kernel_code

CODE = """
#include <string.h>
extern void wanted_by_it(void);
extern void weakly_wanted(void) __attribute__((weak));
void defined_here(void) { wanted_by_it(); if (weakly_wanted) weakly_wanted(); }
void *also_here(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
"""
ANY = re.compile(rb"\w+wanted")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elf")


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_a_compiled_library_is_read(folder: Path, style: str) -> None:
    path = compile_library(
        folder / f"lib{style}.so", CODE, f"-Wl,--hash-style={style}", "-Wl,-soname,libit.so.1",
        "-Wl,-rpath,$ORIGIN/../lib:/opt/lib", "-Wl,--no-as-needed", "-lm",
    )  # fmt: skip
    with open_elf(path) as elf:
        assert elf.soname == "libit.so.1"
        assert elf.search_path == ("$ORIGIN/../lib", "/opt/lib")
        assert elf.needed == ("libm.so.6", "libc.so.6")
        assert re.fullmatch(r"2\.\d+(\.\d+)?", elf.glibc)
        assert elf.undefined(re.compile(rb"wanted|weakly")) == ("wanted_by_it",)
        assert elf.defines("defined_here")
        assert elf.defines("also_here")
        assert not elf.defines("wanted_by_it")
        assert not elf.defines("nowhere")


def test_undefined_symbols_are_found_where_nothing_is_defined(folder: Path) -> None:
    code = "extern int wanted_by_it; static int *kept __attribute__((used)) = &wanted_by_it;"
    with open_elf(compile_library(folder / "libempty.so", code, "-nostdlib")) as elf:
        assert elf.undefined(re.compile(rb"wanted")) == ("wanted_by_it",)
        assert not elf.defines("wanted_by_it")


def test_the_hash_is_that_of_the_linker() -> None:
    assert gnu_hash(b"printf") == 0x156B2BB8


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"#!/bin/sh\n" * 20, "not an ELF"), (b"\x7fELF\x01\x01" + bytes(90), "not a 64-bit")],
)
def test_other_files_are_refused_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(ElfError, match=reason), open_elf(path):
        pass


def test_a_folder_and_nothing_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ElfError, match=r"directory"), open_elf(path):
            pass


def read_everything(data: bytes) -> None:
    """Whatever the bytes: results or ElfError, nothing else."""
    try:
        elf = Elf(data)
    except ElfError:
        return
    for question in (
        lambda: elf.needed, lambda: elf.soname, lambda: elf.search_path, lambda: elf.glibc,
        lambda: elf.undefined(ANY), lambda: elf.defines("defined_here"), lambda: elf.section(".nv_fatbin"),
        lambda: read_kernel_code(elf),
    ):  # fmt: skip
        try:
            question()
        except ElfError:
            continue


@settings(max_examples=300, deadline=2000)
@given(st.binary(max_size=4096))
def test_random_bytes_give_a_result_or_a_reason(tail: bytes) -> None:
    read_everything(tail)
    read_everything(b"\x7fELF\x02\x01" + tail)


@settings(max_examples=500, deadline=2000)
@given(st.data())
def test_damaged_libraries_give_a_result_or_a_reason(folder: Path, data: st.DataObject) -> None:
    path = folder / "libdamaged.so"
    whole = bytearray(
        path.read_bytes() if path.exists() else compile_library(path, CODE, "-Wl,--no-as-needed", "-lm").read_bytes()
    )
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(whole) - 9))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 0xFFFFFFFF, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1))
        struct.pack_into("<Q", whole, place, value)
    end = data.draw(st.just(len(whole)) | st.integers(0, len(whole)))
    read_everything(bytes(whole[:end]))
