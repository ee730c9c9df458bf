"""Reading of environments: with compiled packages, of conda, of the system, of other users, damaged ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.paths import ROOT
from support.sample_environments import (
    NEW_ABI,
    OLD_ABI,
    SYM_NE,
    add_distribution,
    add_torch,
    compile_library,
    compile_with_fatbin,
    fatbin_container,
    fatbin_entry,
    make_venv,
)

from envdoctor.binaries.cache import FILE_NAME
from envdoctor.binaries.libraries import parse_loader_cache
from envdoctor.core.records import Extension, Stack
from envdoctor.environment.distributions import find_metadata, read_distributions
from envdoctor.environment.inspect import read_stack
from envdoctor.environment.layout import read_layout

CALLS_TORCH = f"extern void {SYM_NE}(void), {NEW_ABI}(void); void run(void) {{ {SYM_NE}(); {NEW_ABI}(); }}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return make_venv(tmp_path / "venv")


def read(tmp_path: Path, **environ: str) -> Stack:
    return read_stack(tmp_path / "venv", tmp_path / "cache", {"HOME": str(tmp_path)} | environ)


def extension(stack: Stack, path: str) -> Extension:
    return next(each for each in stack.extensions.value or () if each.path == path)


def add_extension(site: Path, path: str, code: str, *options: str) -> None:
    compile_library(site / path, code, *options)
    name = path.partition("/")[0]
    add_distribution(site, name, "1.0", files=(path,))


@pytest.mark.parametrize(("symbol", "is_new_abi"), [(NEW_ABI, True), (OLD_ABI, False)])
def test_torch_build(tmp_path: Path, site: Path, symbol: str, is_new_abi: bool) -> None:
    add_torch(site, defines=(symbol,))
    build = read(tmp_path).torch.value
    assert (build.version.value, build.cuda.value, build.hip.state) == ("2.8.0+cu128", "12.8", "absent")
    assert build.cxx11_abi.value is is_new_abi


def test_torch_architectures_are_those_of_most_kernels(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    common, special = fatbin_entry(2, 80) + fatbin_entry(2, 90), fatbin_entry(2, 90, flags=0x100011)
    compile_with_fatbin(
        site / "torch/lib/libtorch_cuda.so", fatbin_container(common) * 3 + fatbin_container(common, special)
    )
    add_distribution(site, "torch", "2.8.1", files=("torch/lib/libc10.so", "torch/lib/libtorch_cuda.so"))
    found = read(tmp_path).torch.value.architectures
    assert found.value == ("sm_80", "sm_90")
    assert "sm_90a in 1 of 4" in found.note


def test_symbols_missing_in_torch(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    add_extension(site, "vllm/_C.abi3.so", CALLS_TORCH)
    assert extension(read(tmp_path), "vllm/_C.abi3.so").missing_symbols == ()
    shutil.rmtree(site / "torch-2.8.0.dist-info")
    add_torch(site, defines=(NEW_ABI,))
    assert extension(read(tmp_path), "vllm/_C.abi3.so").missing_symbols == (SYM_NE,)


def test_own_and_weak_symbols_are_not_missing(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    own, weak = "_ZN5torch3ownEv", "_ZN5torch4weakEv"
    add_distribution(site, "audio", "1.0", files=("audio/lib.so", "audio/_C.so"))
    compile_library(site / "audio/lib.so", f"void {own}(void) {{}}")
    weak_code = f"extern void {weak}(void) __attribute__((weak)); void r(void) {{ if ({weak}) {weak}(); {own}(); }}"
    compile_library(site / "audio/_C.so", f"extern void {own}(void); {weak_code}")
    assert extension(read(tmp_path), "audio/_C.so").missing_symbols == ()


def test_nccl_that_is_too_old_for_torch(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    compile_library(site / "nvidia/nccl/lib/libnccl.so.2", "void ncclGetVersion(void) {}")
    add_distribution(site, "nvidia-nccl-cu12", "2.18.1", files=("nvidia/nccl/lib/libnccl.so.2",))
    declared = "extern void ncclGetVersion(void), ncclCommRegister(void);"
    code = declared + "void r(void) { ncclGetVersion(); ncclCommRegister(); }"
    compile_library(site / "torch/lib/libtorch_cuda.so", code)
    add_distribution(site, "torch", "2.8.1", files=("torch/lib/libc10.so", "torch/lib/libtorch_cuda.so"))
    assert extension(read(tmp_path), "torch/lib/libtorch_cuda.so").missing_symbols == ("ncclCommRegister",)


def test_libraries_are_searched_like_the_loader(tmp_path: Path, site: Path) -> None:
    for name in ("libgone", "libbyrunpath", "libbyvariable", "libcudart"):
        compile_library(tmp_path / f"build/{name}.so.12", "", f"-Wl,-soname,{name}.so.12")
    compile_library(tmp_path / "build/libcuda.so.1", "", "-Wl,-soname,libcuda.so.1")
    libraries = [str(path) for path in sorted((tmp_path / "build").iterdir())]
    add_extension(site, "ext/_C.so", "", "-Wl,--no-as-needed", *libraries, "-lm", "-Wl,-rpath,$ORIGIN/../ext.libs")
    assert extension(read(tmp_path), "ext/_C.so").missing_libraries == (
        "libbyrunpath.so.12", "libbyvariable.so.12", "libcudart.so.12", "libgone.so.12",
    )  # fmt: skip
    (site / "ext.libs").mkdir()
    shutil.move(tmp_path / "build/libbyrunpath.so.12", site / "ext.libs")
    (site / "nvidia/cuda_runtime/lib").mkdir(parents=True)
    shutil.move(tmp_path / "build/libcudart.so.12", site / "nvidia/cuda_runtime/lib")
    add_distribution(site, "nvidia-cuda-runtime-cu12", "12.8", files=("nvidia/cuda_runtime/lib/libcudart.so.12",))
    (tmp_path / "build/libgone.so.12").unlink()
    stack = read(tmp_path, LD_LIBRARY_PATH=str(tmp_path / "build"))
    assert extension(stack, "ext/_C.so").missing_libraries == ("libgone.so.12",)


def test_only_the_variant_for_this_cuda_is_checked(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    gone = compile_library(tmp_path / "libcublas.so.99", "", "-Wl,-soname,libcublas.so.99")
    files = tuple(f"bitsandbytes/libbitsandbytes_cuda{number}.so" for number in (118, 128, 130))
    for file in files:
        compile_library(site / file, "", "-Wl,--no-as-needed", str(gone))
    add_distribution(site, "bitsandbytes", "0.48.1", files=files)
    stack = read(tmp_path)
    assert [bool(extension(stack, file).missing_libraries) for file in files] == [False, True, False]


def test_cache_equals_the_files_and_damage_is_ignored(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    add_extension(site, "vllm/_C.abi3.so", CALLS_TORCH)
    (site / "vllm/_text.so").write_text("/* a linker script */")
    fresh = read(tmp_path)
    cache = tmp_path / "cache" / FILE_NAME
    content = cache.read_bytes()
    assert read(tmp_path) == fresh
    for damaged in (b"", b"\xc1", content[: len(content) // 2], msgspec.msgpack.encode({"a": 1}), os.urandom(999)):
        cache.write_bytes(damaged)
        assert read(tmp_path) == fresh
    compile_library(site / "vllm/_C.abi3.so", "void other(void) {}")
    assert extension(read(tmp_path), "vllm/_C.abi3.so").glibc != "?"
    assert extension(read(tmp_path), "vllm/_C.abi3.so").missing_symbols == ()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [FILE_NAME]


def test_unwritable_cache_is_ignored(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    (tmp_path / "cache").write_text("a file instead of a folder")
    assert read(tmp_path).torch.value


def test_damaged_files_are_reported_as_notes(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    (site / "bad").mkdir()
    (site / "bad/cut.so").write_bytes((site / "torch/lib/libc10.so").read_bytes()[:3000])
    add_distribution(site, "bad", "1.0", files=("bad/cut.so", "bad/gone.so"))
    found = read(tmp_path).extensions
    assert found.state == "known"
    assert "cut.so: truncated" in found.note
    assert "1 recorded files do not exist" in found.note


def test_conda_environment_with_conda_and_python_packages(tmp_path: Path) -> None:
    prefix = tmp_path / "conda"
    site = prefix / "lib/python3.12/site-packages"
    (prefix / "conda-meta").mkdir(parents=True)
    add_torch(site)
    (site / "torch-2.8.0.dist-info/INSTALLER").write_text("conda")
    compile_library(site / "ext/_C.so", CALLS_TORCH)
    for name, version, files in (
        ("python", "3.12.4", []), ("cuda-nvcc", "12.8.93", ["bin/nvcc"]), ("pytorch", "2.8.0", []),
        ("ext", "1.0", ["lib/python3.12/site-packages/ext/_C.so"]),
    ):  # fmt: skip
        record = {
            "name": name,
            "version": version,
            "files": files,
            "channel": "conda-forge",
            "depends": [],
            "size": 1,
        }
        (prefix / f"conda-meta/{name}-{version}-h0.json").write_text(json.dumps(record))
    (prefix / "conda-meta/broken-1-0.json").write_text("{")
    stack = read_stack(prefix, None, {"HOME": str(tmp_path)})
    assert (stack.kind.value, stack.python_version.value) == ("conda", "3.12.4")
    assert stack.distributions.value["cuda-nvcc"].source == "conda conda-forge"
    assert stack.distributions.value["torch"].source == "conda conda-forge"
    assert stack.distributions.value["torch"].location == str(site)
    assert "broken-1-0.json" in stack.distributions.note
    assert extension(stack, "ext/_C.so").missing_symbols == ()
    assert stack.torch.value.version.value == "2.8.0+cu128"


def test_files_of_an_editable_project(tmp_path: Path, site: Path) -> None:
    add_torch(site, defines=(NEW_ABI,))
    compile_library(tmp_path / "src tree/my_ext/_C.so", CALLS_TORCH)
    folder = add_distribution(site, "my-ext", "0.1", files=("__editable__.pth",))
    url = (tmp_path / "src tree").as_uri()
    (folder / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": True}}))
    stack = read(tmp_path)
    assert extension(stack, "my_ext/_C.so").missing_symbols == (SYM_NE,)
    assert stack.distributions.value["my-ext"].source == "src%20tree (editable)"


def test_system_python() -> None:
    stack = read_stack(Path("/usr/bin/python3"), None, {"HOME": "/nonexistent"})
    assert stack.kind.value == "system"
    assert (stack.python_version.value or "").startswith("3.")
    assert stack.distributions.state == "known"


def test_reading_imports_nothing_and_starts_no_process(tmp_path: Path, site: Path) -> None:
    add_torch(site)
    (site / "torch/__init__.py").write_text("raise SystemExit('imported')")
    code = (
        "import sys; from pathlib import Path; from envdoctor.environment.inspect import read_stack\n"
        "def forbid(event, arguments):\n"
        "    if event in ('subprocess.Popen', 'os.exec', 'os.fork', 'os.posix_spawn', 'ctypes.dlopen'):\n"
        "        raise SystemExit(event)\n"
        "sys.addaudithook(forbid)\n"
        f"stack = read_stack(Path({str(tmp_path / 'venv')!r}), None)\n"
        "print(stack.torch.value.version.value, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.split() == ["2.8.0+cu128", "False"], done.stderr


@pytest.mark.parametrize("closed", ["secret-1.0.dist-info", "torch", "torch/lib/libc10.so", ""])
def test_unreadable_files_of_another_user_are_notes(tmp_path: Path, closed: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to read as another user")
    place = Path("/tmp") / f"envdoctor-test-{os.getpid()}"  # pytest's folder is not readable for other users
    shutil.rmtree(place, ignore_errors=True)
    try:
        site = make_venv(place / "venv")
        add_torch(site)
        add_distribution(site, "secret", "1.0")
        place.chmod(0o755)
        (site / closed).chmod(0)
        stack = read_without_root(place / "venv", place)
    finally:
        (site / closed).chmod(0o755)
        shutil.rmtree(place)
    facts = (stack.distributions, stack.extensions, stack.torch)
    build = stack.torch.value
    notes = [fact.note for fact in (*facts, *((build.cuda, build.cxx11_abi) if build else ()))]
    assert any("Permission denied" in note for note in notes), notes


def read_without_root(venv: Path, place: Path) -> Stack:
    """Read in a child process without root rights. The modules are already imported, since it cannot read them."""
    output = place / "output.json"
    output.touch()
    output.chmod(0o666)
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            output.write_bytes(msgspec.json.encode(read_stack(venv, None, {"HOME": "/nonexistent"})))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return msgspec.json.decode(output.read_bytes(), type=Stack)


def test_parse_loader_cache() -> None:
    assert parse_loader_cache(b"x" * 200) == {}
    assert parse_loader_cache(b"glibc-ld.so.cache1.1" + b"\xff" * 60) == {}
    assert "libc.so.6" in parse_loader_cache(Path("/etc/ld.so.cache").read_bytes())


def test_invalid_contents_do_not_raise(tmp_path: Path, site: Path) -> None:
    deep = "[" * 100_000
    folder = add_distribution(
        site,
        "odd",
        "1.0",
        headers=f"Requires-Dist: a; {'(' * 5000}\n",
        files=("nul\0l.so", "pipe.so", "../../../x.so"),
    )
    (folder / "direct_url.json").write_text(deep)
    (site / "torch-9.dist-info/METADATA").mkdir(parents=True)
    os.mkfifo(site / "pipe.so")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / FILE_NAME).write_bytes(b"\x91" * 100_000)
    stack = read(tmp_path)
    assert stack.distributions.value["odd"].source == "direct URL"
    assert stack.torch.value.cuda.state == "unreadable"
    assert "not a regular file" in stack.extensions.note
    assert "null" in stack.extensions.note


@pytest.mark.parametrize("settings", [None, b"", b"\xff\x00home", b"home = /nowhere/bin\nversion = nonsense\n"])
def test_damaged_venv_has_unreadable_facts(tmp_path: Path, settings: bytes | None) -> None:
    place = tmp_path / "venv"
    place.mkdir()
    if settings is not None:
        (place / "pyvenv.cfg").write_bytes(settings)
    (place / "bin").mkdir()
    (place / "bin/python").symlink_to("python")
    stack = read(tmp_path)
    assert stack.python.state == "unreadable"
    assert stack.distributions.state == "unreadable"
    assert stack.torch.state == "unreadable"


def test_find_metadata(tmp_path: Path, site: Path) -> None:
    """`archs` and `abi` only need the metadata paths, which are those of the imported distributions."""
    other = tmp_path / "other"
    for place, name, version in ((site, "Flash_Attn", "2.8.3"), (site, "flash-attn", "2.8.2"), (other, "numpy", "1"),
                                 (site, "numpy", "2.2.6"), (site, "ruamel.yaml", "0.18")):  # fmt: skip
        place.mkdir(exist_ok=True)
        add_distribution(place, name, version)
    (site / "~orch-2.8.0.dist-info").mkdir()
    (site / "old_thing-0.5-py3.11.egg-info").mkdir()
    layout = read_layout(tmp_path / "venv", {"PYTHONPATH": str(other)})
    active, conda = find_metadata(layout)
    assert active == read_distributions(layout).metadata
    assert set(active) >= {"flash-attn", "numpy", "ruamel-yaml", "old-thing"}
    assert active["numpy"].parent == other
    assert conda == {}
