"""`envdoctor abi`: what files lack, on libraries that the compiler links, and on a real environment."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stack_place import NEW_ABI, SYM_NE, add_distribution, add_torch, compile_library, make_venv

from envdoctor.binaries.demangle import demangle
from envdoctor.binaries.elf import ElfError, open_elf
from envdoctor.binaries.linkage import Linkage, parse_cache_paths
from envdoctor.binaries.objects import read_object
from envdoctor.commands.diagnosis import stack_of
from envdoctor.core.errors import BadInput
from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.output.abi import lack_words
from envdoctor.verify.abi import AbiChecked, LinkedFile, abi, read_names

SYM_EQ = "_ZNK3c106SymInt6sym_eqERKS0_"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An environment with a torch, whose Python is a real program."""
    site = make_venv(tmp_path / "venv")
    (tmp_path / "venv/bin/python").unlink()
    (tmp_path / "venv/bin/python").symlink_to(Path(sys.executable).resolve())
    add_torch(site)
    return site


def add(site: Path, name: str, code: str, *options: str) -> Path:
    """A distribution of one extension."""
    path = compile_library(site / name / "_C.so", code, "-nostartfiles", *options)
    add_distribution(site, name, "1.0", files=(f"{name}/_C.so",))
    return path


def check(site: Path) -> tuple[dict[str, LinkedFile], int]:
    answer = abi(str(site.parents[2]))
    assert isinstance(answer.data, AbiChecked)
    return {file.distribution: file for file in answer.data.files}, answer.exit_code


def test_a_symbol_that_torch_lacks_is_named_with_torch(site: Path) -> None:
    c10 = (f"-L{site}/torch/lib", "-l:libc10.so")
    compile_library(
        site / "torch/lib/libc10.so", f"void {NEW_ABI}(void) {{}} void {SYM_NE}(void) {{}}", "-Wl,-soname,libc10.so"
    )
    add(site, "fits", f"extern void {SYM_NE}(void); void f(void) {{ {SYM_NE}(); }}", *c10)
    add(site, "lacks", f"extern void {SYM_EQ}(void); void f(void) {{ {SYM_EQ}(); }}", *c10)
    add(
        site,
        "weak",
        f"extern void {SYM_EQ}(void) __attribute__((weak)); void f(void) {{ if ({SYM_EQ}) {SYM_EQ}(); }}",
        *c10,
    )
    files, code = check(site)
    assert (files["fits"].outcome, files["weak"].outcome, code) == ("fits", "fits", 1)
    (lack,) = files["lacks"].lacks
    assert (lack.kind, lack.name, lack.package) == ("symbol", SYM_EQ, "torch")
    assert "c10::SymInt::sym_eq" in lack.readable
    assert lack_words(lack).endswith("which torch should have")


def test_a_library_that_is_nowhere_is_named_with_its_package(site: Path, tmp_path: Path) -> None:
    absent = compile_library(tmp_path / "libcudart.so.12", "void cudaX(void) {}", "-Wl,-soname,libcudart.so.12")
    add(site, "mine", "extern void cudaX(void); void f(void) { cudaX(); }", f"-L{tmp_path}", "-l:libcudart.so.12")
    absent.unlink()
    files, code = check(site)
    (lack,) = files["mine"].lacks  # the symbol would have come from the library: it is not told twice
    assert (lack.kind, lack.name, lack.package, code) == ("library", "libcudart.so.12", "nvidia-cuda-runtime-cu12", 1)


def test_a_driver_that_is_absent_is_no_lack(site: Path, tmp_path: Path) -> None:
    cuda = compile_library(tmp_path / "libcuda.so.1", "void cuInit(void) {}", "-Wl,-soname,libcuda.so.1")
    code = "extern void cuInit(void), other(void); void f(void) { cuInit(); other(); }"
    add(site, "mine", code, f"-L{tmp_path}", "-l:libcuda.so.1")
    cuda.unlink()
    files, _ = check(site)
    assert [lack.name for lack in files["mine"].lacks] == ["other"]


def test_a_symbol_version_that_a_library_lacks_is_told_with_the_file(site: Path, tmp_path: Path) -> None:
    def versioned(path: Path, versions: str) -> Path:
        (tmp_path / "map").write_text(versions)
        return compile_library(
            path,
            "void old(void) {} void new(void) {}",
            f"-Wl,--version-script={tmp_path / 'map'}",
            "-Wl,-soname,libv.so.1",
        )

    newer = versioned(tmp_path / "libv.so.1", "V_1 { global: old; }; V_2 { global: new; } V_1;")
    add(site, "mine", "extern void old(void), new(void); void f(void) { old(); new(); }", str(newer))
    add_distribution(site, "libv", "1.0", files=("libv/libv.so.1",))
    ours = versioned(site / "libv/libv.so.1", "V_1 { global: old; new; };")
    files, code = check(site)
    (lack,) = files["mine"].lacks
    assert (lack.kind, lack.name, lack.library, lack.found) == ("version", "V_2", "libv.so.1", str(ours))
    assert code == 1
    with open_elf(site / "mine/_C.so") as elf:
        assert elf.needed_versions["libv.so.1"] == ("V_1", "V_2")
        assert elf.wanted()[b"new"] == "V_2"
    with open_elf(ours) as elf:
        assert "V_1" in elf.defined_versions
        assert {b"old", b"new"} <= elf.exported()


def test_a_symbol_of_a_library_that_is_not_linked_is_no_lack(site: Path) -> None:
    add(site, "mine", f"extern void {SYM_NE}(void); void f(void) {{ {SYM_NE}(); }}")
    files, code = check(site)
    assert (files["mine"].outcome, files["mine"].elsewhere, code) == ("fits", (SYM_NE,), 0)


def test_symbols_of_python_come_from_the_program(site: Path) -> None:
    add(site, "mine", "extern void PyLong_FromLong(void); void f(void) { PyLong_FromLong(); }")
    add(site, "odd", "extern void PyNothing_OfTheKind(void); void f(void) { PyNothing_OfTheKind(); }")
    files, _ = check(site)
    assert files["mine"].outcome == "fits"
    assert files["odd"].lacks[0].package == "Python"


def test_other_machines_and_broken_files_are_told_apart(site: Path) -> None:
    path = add(site, "foreign", "int x;")
    data = bytearray(path.read_bytes())
    data[18] = 183 if os.uname().machine == "x86_64" else 62
    path.write_bytes(data)
    (site / "broken").mkdir()
    (site / "broken/_C.so").write_text("gone")
    add_distribution(site, "broken", "1.0", files=("broken/_C.so",))
    files, code = check(site)
    assert files["foreign"].outcome == "left-out"
    assert files["broken"].outcome == "unread"
    assert code == 0


def test_a_place_that_is_no_environment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file", tmp_path / "nowhere"):
        with pytest.raises(BadInput):
            abi(str(place))


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZNK3c106SymInt6sym_neERKS0_", "c10::SymInt::sym_ne"),
        ("_ZN3c105ErrorC1ENS_14SourceLocationE", "c10::Error::Error"),
        ("_ZTVN3c105ErrorE", "vtable for c10::Error"),
        ("_ZN2at4_ops5empty4callEv", "at::_ops::empty::call"),
        ("_ZSt4cout", "std::cout"),
        ("_Z3foov", "foo"),
        ("ncclCommRegister", "ncclCommRegister"),
        ("_Z", "_Z"), ("_ZN", "_ZN"), ("_ZN9999x", "_ZN9999x"), ("", ""),
    ],
)  # fmt: skip
def test_a_mangled_name_is_read(symbol: str, name: str) -> None:
    assert demangle(symbol) == name


def test_names_are_bare_where_there_is_no_demangler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_names([SYM_NE]) == {SYM_NE: "c10::SymInt::sym_ne"}


def test_libraries_have_packages() -> None:
    known = {
        "libcudart.so.12": "nvidia-cuda-runtime-cu12", "libcudart.so.13": "nvidia-cuda-runtime",
        "libcublas.so.11": "nvidia-cublas-cu11", "libcudnn.so.9": "nvidia-cudnn-cu12",
        "libnccl.so.2": "nvidia-nccl-cu12", "libcufft.so.11": "nvidia-cufft-cu12", "libtorch_cpu.so": "torch",
        "libtorchaudio.so": "torchaudio", "libcuda.so.1": "the NVIDIA driver", "libfoo.so": "",
    }  # fmt: skip
    assert {name: package_of_library(name, "12.8") for name in known} == known
    assert package_of_library("libcudnn.so.9", "13.0") == "nvidia-cudnn-cu13"
    assert package_of_symbol("ncclCommRegister", "12.8") == "nvidia-nccl-cu12"
    assert package_of_symbol("cublasCreate_v2", "13.0") == "nvidia-cublas"


@pytest.mark.stack
def test_a_real_environment_lacks_what_the_rules_say_and_nothing_else() -> None:
    given = os.environ.get("ENVDOCTOR_CUDA_PYTHON")
    if not given:
        pytest.skip("ENVDOCTOR_CUDA_PYTHON names no interpreter of an environment with CUDA wheels")
    prefix = Path(given).parent.parent
    files = {(file.distribution, file.path): file for file in abi(str(prefix)).data.files}
    stack = stack_of(str(prefix), "", search=False)
    assert stack is not None
    for each in stack.extensions.value or ():
        lacked = {lack.name for lack in files[each.distribution, each.path].lacks}
        if files[each.distribution, each.path].outcome != "left-out":
            assert set(each.missing_symbols) == {name for name in lacked if name.startswith(("_Z", "nccl"))}, (
                each.path
            )
            assert set(each.missing_libraries) <= lacked, each.path


@settings(max_examples=200, deadline=4000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_give_a_result_or_a_reason(data: st.DataObject, tmp_path: Path) -> None:
    path, damaged = tmp_path / "whole.so", tmp_path / "damaged.so"
    if not path.exists():
        code = "#include <string.h>\nextern void w(void);\nvoid *d(void *a, void *b) { w(); return memcpy(a, b, 9); }"
        compile_library(path, code, "-Wl,--no-as-needed", "-lm")
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(whole) - 9))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 0xFFFFFFFF, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1))
        struct.pack_into("<Q", whole, place, value)
    damaged.write_bytes(bytes(whole[: data.draw(st.just(len(whole)) | st.integers(0, len(whole)))]))
    for question in (lambda: Linkage({}, [], {}, "").unmet(str(damaged)), lambda: read_object(damaged)):
        with contextlib.suppress(ElfError):
            question()


@settings(max_examples=200, deadline=2000)
@given(st.text(max_size=60) | st.text("_ZNKSt0123456789abE", max_size=60).map("_ZN".__add__))
def test_any_text_has_a_bare_name(symbol: str) -> None:
    assert isinstance(demangle(symbol), str)


@settings(max_examples=100, deadline=2000)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_cache_or_none(data: bytes) -> None:
    assert isinstance(parse_cache_paths(b"glibc-ld.so.cache1.1" + data), dict)
