"""The reader of GPU code: synthetic containers and output of nvcc. test_archs.py compares it with cuobjdump."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing import EXAMPLES
from support.sample_environments import compile_library, compile_with_fatbin, fatbin_container, fatbin_entry

from envdoctor.binaries.elf import open_elf
from envdoctor.binaries.fatbin import MAGIC, read_kernel_code, scan_containers
from envdoctor.core.records import KernelCode

PTX, CUBIN, LTO = 1, 2, 8


def code_of(path: Path) -> KernelCode | None:
    with open_elf(path) as elf:
        return read_kernel_code(elf)


def test_containers_are_counted_by_their_code(tmp_path: Path) -> None:
    both = fatbin_container(fatbin_entry(CUBIN, 80), fatbin_entry(PTX, 80, flags=0x2011, isa=(8, 7)))
    only_ptx = fatbin_container(fatbin_entry(PTX, 90, isa=(8, 10)))
    suffixes = fatbin_container(
        fatbin_entry(CUBIN, 90, flags=0x100011),
        fatbin_entry(CUBIN, 100, flags=0x1200011),
        fatbin_entry(LTO, 75),
        fatbin_entry(CUBIN, 120, flags=0x1000011),
    )
    path = compile_with_fatbin(tmp_path / "x.so", both + bytes(8) + only_ptx + both + suffixes)
    assert code_of(path) == KernelCode(
        native=("sm_80", "sm_90a", "sm_100f", "sm_120"),
        ptx=("compute_80", "compute_90"),
        ptx_isa="8.10",  # newer than 8.7: compared as numbers
        ptx_only=True,
        containers={"sm_80 compute_80": 2, "compute_90": 1, "sm_90a sm_100f sm_120": 1},
    )


def test_library_without_gpu_code(tmp_path: Path) -> None:
    assert code_of(compile_library(tmp_path / "plain.so", "int x;")) is None
    assert code_of(compile_with_fatbin(tmp_path / "empty.so", fatbin_container())) is None


@settings(max_examples=3 * EXAMPLES)
@given(st.lists(st.binary(max_size=120), max_size=20))
def test_random_bytes_terminate(parts: list[bytes]) -> None:
    data = MAGIC.join(parts)
    assert len(list(scan_containers(data, 0, len(data)))) <= len(data)


def test_number_of_containers_is_limited() -> None:
    data = fatbin_container() * 400_000
    assert len(list(scan_containers(data, 0, len(data)))) == 1 << 17


@pytest.mark.network
def test_output_of_nvcc(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "-q",
            "--target",
            tmp_path / "cuda",
            "nvidia-cuda-nvcc==13.5.37",
        ],
        check=True,
    )
    source = tmp_path / "kernel.cu"
    source.write_text("__global__ void k(float *x) { x[threadIdx.x] *= 2; }\n")
    architectures = ["sm_80", "sm_90a", "sm_100f", "sm_100a", "sm_120", "compute_80", "compute_90a", "compute_100f"]
    targets = [f"-gencode=arch={name.replace('sm', 'compute')},code={name}" for name in architectures]
    fatbin = tmp_path / "kernel.fatbin"
    nvcc = tmp_path / "cuda/nvidia/cu13/bin/nvcc"
    subprocess.run([nvcc, "-fatbin", "-o", fatbin, source, *targets], check=True)
    code = code_of(compile_with_fatbin(tmp_path / "kernel.so", fatbin.read_bytes()))
    assert code is not None
    assert set(code.native) | set(code.ptx) == set(architectures)
    assert (code.ptx_isa, code.ptx_only) == ("9.5", False)
