"""Remedies of compiled files, with real shared libraries in the wheels: uv installs them, and the rules read them.

The fault is in the wheels of one index, from which the environment is made; the remedy installs from another one.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from support.cases import each_case
from support.release_index import Release, ReleaseIndex
from support.remedy_proof import Example, Result, Trial
from support.report_stack import make_machine, torch_stack
from support.sample_environments import compile_library, compile_with_fatbin, fatbin_container, fatbin_entry

from envdoctor.core.records import Stack
from envdoctor.environment.inspect import read_stack
from envdoctor.knowledge.releases import required_specifier
from envdoctor.knowledge.versions import minor_of

FLASH, VLLM, NCCL = (
    "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
    "vllm/_C.abi3.so",
    "nvidia/nccl/lib/libnccl.so.2",
)
CUBIN = 2
FOLDER = Path(tempfile.mkdtemp(prefix="libraries"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
NCCL_FUNCTION = "ncclCommResume"  # of NCCL 2.27

Wheel = Callable[[bool, Release], dict[str, bytes]]  # whether the release is of the faulty environment


class FileTrial(Trial):
    """An environment whose facts are those of its files, and none of the example's."""

    def stack(self) -> Stack:
        found = read_stack(self.venv, None, {})
        return msgspec.structs.replace(found, python_version=self.example.stack.python_version)


def function_of(torch: str) -> str:
    """A C++ function that only one minor release of torch has: c10::for_2_8()."""
    name = f"for_{minor_of(torch).replace('.', '_')}"
    return f"_ZN3c10{len(name)}{name}Ev"


def new_file(name: str) -> Path:
    """A path of its own for each compilation: the index makes wheels in several threads."""
    return Path(tempfile.mkdtemp(dir=FOLDER), name)


def library(code: str, *options: str) -> bytes:
    return compile_library(new_file("library.so"), code, "-nostdlib", *options).read_bytes()


def caller(function: str) -> bytes:
    """A library that calls a function of another one."""
    return library(f"extern void {function}(void); void f(void) {{ {function}(); }}")


def linked(name: str) -> bytes:
    """A library that needs another one."""
    needed = compile_library(new_file(name), "void needed(void) {}", "-nostdlib", f"-Wl,-soname,{name}")
    return library("extern void needed(void); void f(void) { needed(); }", f"-L{needed.parent}", f"-l:{name}")


def kernels(architecture: int) -> bytes:
    entry = fatbin_entry(CUBIN, architecture)
    return compile_with_fatbin(new_file("kernels.so"), fatbin_container(entry)).read_bytes()


def torch_files(release: Release) -> dict[str, bytes]:
    if release.name != "torch":
        return {}
    return {"torch/lib/libc10.so": library(f"void {function_of(release.version)}(void) {{}}")}


def rebuilt(is_faulty: bool, release: Release) -> dict[str, bytes]:
    """flash-attn was compiled for torch 2.7."""
    if release.name == "flash-attn":
        return {FLASH: caller(function_of("2.7.1" if is_faulty else "2.8.0"))}
    return torch_files(release)


def for_one_torch(_: bool, release: Release) -> dict[str, bytes]:
    """Each vLLM is compiled for the torch that it requires."""
    if release.name == "vllm":
        return {VLLM: caller(function_of(required_specifier("vllm", release.version, "torch").lstrip("=")))}
    return torch_files(release)


def old_nccl(_: bool, release: Release) -> dict[str, bytes]:
    """NCCL 2.21 has no ncclCommResume, which torch 2.8 calls."""
    if release.name.startswith("nvidia-nccl"):
        is_old = release.version.startswith("2.21")
        return {NCCL: library(f"void {'ncclCommAbort' if is_old else NCCL_FUNCTION}(void) {{}}")}
    files = torch_files(release)
    return files | {"torch/lib/libtorch_cuda.so": caller(NCCL_FUNCTION)} if files else {}


def other_cuda(is_faulty: bool, release: Release) -> dict[str, bytes]:
    """flash-attn was compiled for CUDA 12, torch for CUDA 13."""
    if release.name == "flash-attn":
        return {FLASH: linked("libcudart.so.12") if is_faulty else library("void f(void) {}")}
    return torch_files(release)


def removed_library(_: bool, release: Release) -> dict[str, bytes]:
    """NVIDIA's package with the library is missing."""
    if release.name == "nvidia-cublas-cu12":
        return {"nvidia/cublas/lib/libcublas.so.12": library("void needed(void) {}", "-Wl,-soname,libcublas.so.12")}
    return {FLASH: linked("libcublas.so.12")} if release.name == "flash-attn" else torch_files(release)


def other_gpu(is_faulty: bool, release: Release) -> dict[str, bytes]:
    """flash-attn was compiled for the A100 only."""
    return {FLASH: kernels(80 if is_faulty else 120)} if release.name == "flash-attn" else torch_files(release)


class Case(NamedTuple):
    """A fault, its environment, and how many remedies must cure it."""

    rule: str
    torch: str
    packages: dict[str, str]
    wheel: Wheel
    remedies: int = 1
    gpu: str = "NVIDIA H100 80GB HBM3"


FLASH_ATTN = {"flash-attn": "2.8.3"}
CASES = {
    "flash-attn for another torch": Case("EXT001", "2.8.0+cu128", FLASH_ATTN, rebuilt),
    "vLLM for another torch": Case(
        "EXT001", "2.9.0+cu128", {"vllm": "0.10.2", "transformers": "4.57.1"}, for_one_torch, remedies=2
    ),
    "old NCCL": Case("EXT002", "2.8.0+cu128", {"nvidia-nccl-cu12": "2.21.5"}, old_nccl),
    "flash-attn for another CUDA": Case("EXT003", "2.9.1+cu130", FLASH_ATTN, other_cuda),
    "library that is not installed": Case("EXT003", "2.8.0+cu128", FLASH_ATTN, removed_library),
    "flash-attn for another GPU": Case("EXT004", "2.8.0+cu128", FLASH_ATTN, other_gpu, gpu="NVIDIA GeForce RTX 5090"),
}


def results_of(name: str, place: Path, changing_index: ReleaseIndex) -> list[Result]:
    case = CASES[name]
    stack = torch_stack(case.torch, packages=case.packages | {"torch": case.torch})
    changing_index.contents = lambda used, release: case.wheel(used.startswith("made"), release)
    example = Example(case.rule, name, make_machine([case.gpu], driver="580.95.05"), stack)
    return list(FileTrial(place, changing_index, example).results())


def check(name: str, place: Path, changing_index: ReleaseIndex) -> None:
    results = results_of(name, place, changing_index)
    assert [failure for _, failure in results] == [""] * CASES[name].remedies, results


def test_a_rebuilt_extension_has_the_symbols(tmp_path: Path, changing_index: ReleaseIndex) -> None:
    check("flash-attn for another torch", tmp_path, changing_index)


@pytest.mark.long
@each_case("name", list(CASES)[1:])
def test_remedies_of_compiled_files_cure(name: str, tmp_path: Path, changing_index: ReleaseIndex) -> None:
    check(name, tmp_path, changing_index)
