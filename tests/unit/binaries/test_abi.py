"""`envdoctor abi`: missing dependencies of compiled libraries and of a real environment."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sample_environments import NEW_ABI, SYM_NE, add_distribution, add_torch, compile_library, make_venv

from envdoctor.binaries.demangle import demangle
from envdoctor.binaries.elf import ElfError, open_elf
from envdoctor.binaries.libraries import parse_loader_cache
from envdoctor.binaries.linkage import Linkage
from envdoctor.binaries.objects import read_object
from envdoctor.commands.abi import AbiReport, AbiRequest, LinkedFile
from envdoctor.commands.abi import run as abi
from envdoctor.core.errors import BadInput
from envdoctor.environment.select import select_stack
from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.output.abi import describe_missing
from envdoctor.verify.linked_environment import demangle_all

pytestmark = pytest.mark.usefixtures("isolated_cache")

SYM_EQ = "_ZNK3c106SymInt6sym_eqERKS0_"


@pytest.fixture(autouse=True)
def _no_library_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An environment with torch and a real Python interpreter."""
    site = make_venv(tmp_path / "venv")
    (tmp_path / "venv/bin/python").unlink()
    (tmp_path / "venv/bin/python").symlink_to(Path(sys.executable).resolve())
    add_torch(site)
    return site


def add_extension(site: Path, name: str, code: str, *options: str) -> Path:
    """Add a distribution with one extension module."""
    path = compile_library(site / name / "_C.so", code, "-nostartfiles", *options)
    add_distribution(site, name, "1.0", files=(f"{name}/_C.so",))
    return path


def run_abi(site: Path) -> tuple[dict[str, LinkedFile], int]:
    result = abi(AbiRequest(venv=str(site.parents[2])))
    assert isinstance(result.data, AbiReport)
    return {file.distribution: file for file in result.data.files}, result.exit_code


def test_symbol_missing_in_torch_is_attributed_to_torch(site: Path) -> None:
    c10 = (f"-L{site}/torch/lib", "-l:libc10.so")
    compile_library(
        site / "torch/lib/libc10.so", f"void {NEW_ABI}(void) {{}} void {SYM_NE}(void) {{}}", "-Wl,-soname,libc10.so"
    )
    add_extension(site, "complete", f"extern void {SYM_NE}(void); void f(void) {{ {SYM_NE}(); }}", *c10)
    add_extension(site, "incomplete", f"extern void {SYM_EQ}(void); void f(void) {{ {SYM_EQ}(); }}", *c10)
    add_extension(
        site,
        "weak",
        f"extern void {SYM_EQ}(void) __attribute__((weak)); void f(void) {{ if ({SYM_EQ}) {SYM_EQ}(); }}",
        *c10,
    )
    files, code = run_abi(site)
    assert (files["complete"].outcome, files["weak"].outcome, code) == ("ok", "ok", 1)
    (missing,) = files["incomplete"].missing
    assert (missing.kind, missing.name, missing.package) == ("symbol", SYM_EQ, "torch")
    assert "c10::SymInt::sym_eq" in missing.demangled
    assert describe_missing(missing).endswith("(from torch), which is not defined")


def test_missing_library_is_attributed_to_its_package(site: Path, tmp_path: Path) -> None:
    library = compile_library(tmp_path / "libcudart.so.12", "void cudaX(void) {}", "-Wl,-soname,libcudart.so.12")
    add_extension(
        site, "mine", "extern void cudaX(void); void f(void) { cudaX(); }", f"-L{tmp_path}", "-l:libcudart.so.12"
    )
    library.unlink()
    files, code = run_abi(site)
    (missing,) = files["mine"].missing  # the symbol of that library is not reported as well
    assert (missing.kind, missing.name, missing.package, code) == (
        "library",
        "libcudart.so.12",
        "nvidia-cuda-runtime-cu12",
        1,
    )


def test_symbols_of_an_absent_driver_are_not_missing(site: Path, tmp_path: Path) -> None:
    cuda = compile_library(tmp_path / "libcuda.so.1", "void cuInit(void) {}", "-Wl,-soname,libcuda.so.1")
    code = "extern void cuInit(void), other(void); void f(void) { cuInit(); other(); }"
    add_extension(site, "mine", code, f"-L{tmp_path}", "-l:libcuda.so.1")
    cuda.unlink()
    files, _ = run_abi(site)
    assert [missing.name for missing in files["mine"].missing] == ["other"]


def test_missing_symbol_version_is_reported_with_the_library_path(site: Path, tmp_path: Path) -> None:
    def versioned(path: Path, versions: str) -> Path:
        (tmp_path / "map").write_text(versions)
        return compile_library(
            path,
            "void old(void) {} void new(void) {}",
            f"-Wl,--version-script={tmp_path / 'map'}",
            "-Wl,-soname,libv.so.1",
        )

    newer = versioned(tmp_path / "libv.so.1", "V_1 { global: old; }; V_2 { global: new; } V_1;")
    add_extension(site, "mine", "extern void old(void), new(void); void f(void) { old(); new(); }", str(newer))
    add_distribution(site, "libv", "1.0", files=("libv/libv.so.1",))
    older = versioned(site / "libv/libv.so.1", "V_1 { global: old; new; };")
    files, code = run_abi(site)
    (missing,) = files["mine"].missing
    assert (missing.kind, missing.name, missing.library, missing.library_path) == (
        "version",
        "V_2",
        "libv.so.1",
        str(older),
    )
    assert code == 1
    with open_elf(site / "mine/_C.so") as elf:
        assert elf.needed_versions["libv.so.1"] == ("V_1", "V_2")
        assert elf.required_symbols()[b"new"] == "V_2"
    with open_elf(older) as elf:
        assert "V_1" in elf.defined_versions
        assert {b"old", b"new"} <= elf.exported_symbols()


def test_symbol_of_an_unlinked_library_is_not_missing(site: Path) -> None:
    add_extension(site, "mine", f"extern void {SYM_NE}(void); void f(void) {{ {SYM_NE}(); }}")
    files, code = run_abi(site)
    assert (files["mine"].outcome, files["mine"].unlinked_symbols, code) == ("ok", (SYM_NE,), 0)


def test_python_symbols_are_found_in_the_interpreter(site: Path) -> None:
    add_extension(site, "mine", "extern void PyLong_FromLong(void); void f(void) { PyLong_FromLong(); }")
    add_extension(site, "odd", "extern void PyNothing_OfTheKind(void); void f(void) { PyNothing_OfTheKind(); }")
    files, _ = run_abi(site)
    assert files["mine"].outcome == "ok"
    assert files["odd"].missing[0].package == "Python"


def test_a_file_for_another_python_or_torch_is_skipped(site: Path) -> None:
    """vLLM 0.31's deep_gemm has a file for each Python, torch-c-dlpack-ext one for each torch up to 2.9."""
    minor = sys.version_info.minor
    code = "void PyNothing_OfTheKind(void); void start(void) { PyNothing_OfTheKind(); }"
    names = [f"deep_gemm/_C.cpython-3{number}-x86_64-linux-gnu.so" for number in (minor, minor + 1)]
    names.append("torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch29-cpu.so")
    for name in names:
        compile_library(site / name, code, "-nostartfiles")
    add_distribution(site, "mine", "1.0", files=tuple(names))
    result = abi(AbiRequest(venv=str(site.parents[2])))
    assert isinstance(result.data, AbiReport)
    outcomes = {file.path: (file.outcome, file.reason) for file in result.data.files}
    assert [outcomes[name] for name in names] == [
        ("missing", ""),
        ("skipped", f"built for Python 3.{minor + 1}"),
        ("skipped", "optional part of its package"),
    ]


def test_foreign_architectures_are_skipped_and_broken_files_unreadable(site: Path) -> None:
    path = add_extension(site, "foreign", "int x;")
    data = bytearray(path.read_bytes())
    data[18] = 183 if os.uname().machine == "x86_64" else 62
    path.write_bytes(data)
    (site / "broken").mkdir()
    (site / "broken/_C.so").write_text("gone")
    add_distribution(site, "broken", "1.0", files=("broken/_C.so",))
    files, code = run_abi(site)
    assert files["foreign"].outcome == "skipped"
    assert files["broken"].outcome == "unreadable"
    assert code == 3


def test_rejects_a_path_that_is_not_an_environment(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file", tmp_path / "nowhere"):
        with pytest.raises(BadInput):
            abi(AbiRequest(venv=str(path)))


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
def test_demangle(symbol: str, name: str) -> None:
    assert demangle(symbol) == name


def test_demangle_all_without_cxxfilt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demangle_all([SYM_NE]) == {SYM_NE: "c10::SymInt::sym_ne"}


def test_packages_of_libraries_and_symbols() -> None:
    packages = {
        "libcudart.so.12": "nvidia-cuda-runtime-cu12", "libcudart.so.13": "nvidia-cuda-runtime",
        "libcublas.so.11": "nvidia-cublas-cu11", "libcudnn.so.9": "nvidia-cudnn-cu12",
        "libnccl.so.2": "nvidia-nccl-cu12", "libcufft.so.11": "nvidia-cufft-cu12", "libtorch_cpu.so": "torch",
        "libtorchaudio.so": "torchaudio", "libcuda.so.1": "the NVIDIA driver", "libfoo.so": "",
    }  # fmt: skip
    assert {name: package_of_library(name, "12.8") for name in packages} == packages
    assert package_of_library("libcudnn.so.9", "13.0") == "nvidia-cudnn-cu13"
    assert package_of_symbol("ncclCommRegister", "12.8") == "nvidia-nccl-cu12"
    assert package_of_symbol("cublasCreate_v2", "13.0") == "nvidia-cublas"


@pytest.mark.stack
def test_real_environment_agrees_with_the_rules() -> None:
    interpreter = os.environ.get("ENVDOCTOR_CUDA_PYTHON")
    if not interpreter:
        pytest.skip("ENVDOCTOR_CUDA_PYTHON is not set to an interpreter with CUDA wheels")
    prefix = Path(interpreter).parent.parent
    files = {(file.distribution, file.path): file for file in abi(AbiRequest(venv=str(prefix))).data.files}
    stack = select_stack(str(prefix), "")
    assert stack is not None
    for each in stack.extensions.value or ():
        missing_names = {missing.name for missing in files[each.distribution, each.path].missing}
        if files[each.distribution, each.path].outcome != "skipped":
            assert set(each.missing_symbols) == {name for name in missing_names if name.startswith(("_Z", "nccl"))}, (
                each.path
            )
            assert set(each.missing_libraries) <= missing_names, each.path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_give_a_result_or_an_error(data: st.DataObject, tmp_path: Path) -> None:
    path, damaged = tmp_path / "intact.so", tmp_path / "damaged.so"
    if not path.exists():
        code = "#include <string.h>\nextern void w(void);\nvoid *d(void *a, void *b) { w(); return memcpy(a, b, 9); }"
        compile_library(path, code, "-Wl,--no-as-needed", "-lm")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(content) - 9))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 0xFFFFFFFF, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1))
        struct.pack_into("<Q", content, place, value)
    damaged.write_bytes(bytes(content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))]))
    for read in (lambda: Linkage({}, [], {}, "").unresolved(str(damaged)), lambda: read_object(damaged)):
        with contextlib.suppress(ElfError):
            read()


@given(st.text(max_size=60) | st.text("_ZNKSt0123456789abE", max_size=60).map("_ZN".__add__))
def test_demangle_accepts_any_text(symbol: str) -> None:
    assert isinstance(demangle(symbol), str)


@given(st.binary(max_size=400))
def test_parse_loader_cache_accepts_any_bytes(data: bytes) -> None:
    assert isinstance(parse_loader_cache(b"glibc-ld.so.cache1.1" + data), dict)
