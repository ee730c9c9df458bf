"""The load test with real compiled files that load, miss a dependency, crash and hang, in a real Python."""

from __future__ import annotations

import re
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sample_environments import add_distribution, compile_library

from envdoctor.commands.abi import AbiRequest
from envdoctor.commands.abi import run as run_abi
from envdoctor.core.errors import BadInput
from envdoctor.output.layout import lines
from envdoctor.output.load_test import render_load_test
from envdoctor.verify.loading import LoadResult, LoadTest, run_load_test, runner
from envdoctor.verify.loading.driver_libraries import prepare_driver_libraries
from envdoctor.verify.loading.messages import classify_loader_error, find_warnings
from envdoctor.verify.loading.runner import worker_count

EXTENSIONS = {
    "good": "int f(void) { return 1; }",
    "symbol": "extern void _ZNK3c106SymInt6sym_neERKS0_(void); void f(void) { _ZNK3c106SymInt6sym_neERKS0_(); }",
    "aborts": '#include <stdlib.h>\n#include <stdio.h>\n__attribute__((constructor)) static void f(void) {'
    ' fprintf(stderr, "terminate called\\n  what():  Tried to register twice\\n"); abort(); }',
    "segfaults": "__attribute__((constructor)) static void f(void) { *(volatile int *)8 = 1; }",
    "hangs": "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { for (;;) pause(); }",
    "exits": "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { _exit(7); }",
}  # fmt: skip
MODULES = {  # distribution -> module and its code
    "torch": ("torch", "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).parent / 'lib/libc10.so'))\n"),
    "bitsandbytes": (
        "bitsandbytes",
        "print('bitsandbytes library load error: libcudart.so.12: cannot open shared object file')\nprint('hello')\n",
    ),
    "trl": ("trl", "def __getattr__(name):\n    raise ImportError('No module named vllm_ascend')\n"),
    "vllm": ("vllm", "import os\nclass LLM: pass\nos.abort()\n"),
    "peft": ("peft", "class LoraConfig: pass\n"),
}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of a real Python with a file for each outcome."""
    prefix = tmp_path_factory.mktemp("loading") / "venv"
    venv.EnvBuilder(symlinks=True).create(prefix)
    site = next(prefix.glob("lib/python3.*/site-packages"))
    for name, code in EXTENSIONS.items():
        compile_library(site / name / "_C.so", code)
        add_distribution(site, name, "1.0", files=(f"{name}/_C.so",))
    compile_library(site / "torch/lib/libc10.so", "int c10_here(void) { return 3; }", "-Wl,-soname,libc10.so")
    for name, (module, code) in MODULES.items():
        (site / module).mkdir(exist_ok=True)
        (site / module / "__init__.py").write_text(code)
        files = ("torch/lib/libc10.so",) if name == "torch" else ()
        add_distribution(site, name, "1.0", files=(f"{module}/__init__.py", *files))
    add_linked_extension(
        site, "ontorch", site / "torch/lib/libc10.so", "extern int c10_here(void); int f(void) { return c10_here(); }"
    )
    cuda = compile_library(prefix / "libcuda.so.1", "int cuInit(int x) { return x; }", "-Wl,-soname,libcuda.so.1")
    add_linked_extension(site, "ondriver", cuda, "extern int cuInit(int); int f(void) { return cuInit(0); }")
    gone = compile_library(prefix / "libgone.so.1", "int gone(void) { return 1; }", "-Wl,-soname,libgone.so.1")
    add_linked_extension(site, "library", gone, "extern int gone(void); int f(void) { return gone(); }")
    cuda.unlink()
    gone.unlink()
    sibling = compile_library(
        site / "family/lib/libfamily.so", "int kin(void) { return 1; }", "-Wl,-soname,libfamily.so"
    )
    compile_library(site / "family/_C.so", "extern int kin(void); int f(void) { return kin(); }", str(sibling))
    add_distribution(site, "family", "1.0", files=("family/_C.so", "family/lib/libfamily.so"))
    return prefix


def add_linked_extension(site: Path, name: str, library: Path, code: str) -> None:
    compile_library(site / name / "_C.so", code, f"-L{library.parent}", f"-l:{library.name}")
    add_distribution(site, name, "1.0", files=(f"{name}/_C.so",))


@pytest.fixture(scope="module")
def load_test(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoadTest, list[LoadResult]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("LD_LIBRARY_PATH", raising=False)
        patch.setattr(runner, "FILE_SECONDS", 3.0)
        reported: list[LoadResult] = []
        yield run_load_test(prefix / "bin/python", on_result=reported.append), reported


@pytest.fixture
def results(load_test: tuple[LoadTest, list[LoadResult]]) -> dict[str, LoadResult]:
    return {
        result.distribution: result for result in load_test[0].results if result.name != "family/lib/libfamily.so"
    }


def test_each_file_has_its_outcome(results: dict[str, LoadResult]) -> None:
    outcomes = {name: results[name].outcome for name in (*EXTENSIONS, "ontorch", "library", "family")}
    assert outcomes == {
        "good": "loaded", "symbol": "missing-symbol", "aborts": "aborted", "segfaults": "aborted",
        "hangs": "timed-out", "exits": "failed", "ontorch": "loaded", "library": "missing-library",
        "family": "loaded",
    }  # fmt: skip
    assert re.search(r"c10::SymInt::sym_ne.*\(from torch\)", results["symbol"].message)
    assert results["aborts"].message == "was killed by SIGABRT: Tried to register twice"
    assert "SIGSEGV" in results["segfaults"].message
    assert results["library"].message.startswith("needs libgone.so.1")
    assert results["hangs"].seconds >= 2
    assert "exit code 7" in results["exits"].message


def test_files_that_need_the_driver_load_with_a_stub_library(
    load_test: tuple[LoadTest, list[LoadResult]], results: dict[str, LoadResult]
) -> None:
    if "of the installed driver" in load_test[0].driver_libraries:
        pytest.skip("a driver is installed on this machine")
    assert load_test[0].driver_libraries == "a stub of libcuda.so.1 with 1 functions"
    assert results["ondriver"].outcome == "loaded"


def test_imports_are_reported_with_relevant_warnings(results: dict[str, LoadResult]) -> None:
    assert results["peft"].outcome == "loaded"
    assert results["bitsandbytes"].outcome == "loaded"
    assert results["bitsandbytes"].warnings == (
        "bitsandbytes library load error: libcudart.so.12: cannot open shared object file",
    )
    assert (results["trl"].outcome, results["trl"].message) == ("failed", "ImportError: No module named vllm_ascend")
    assert results["vllm"].outcome == "aborted"


def test_each_result_is_reported_once(load_test: tuple[LoadTest, list[LoadResult]]) -> None:
    report, reported = load_test
    assert sorted(result.name for result in reported) == sorted(result.name for result in report.results)
    assert not report.passed
    text = "\n".join(line.plain for part in render_load_test(report) for line in lines(part, None))
    assert "4 of 10 compiled files loaded" in text
    assert "loaded with the files that need it" in text


def test_without_a_compiler_files_that_need_the_driver_are_skipped(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "FILE_SECONDS", 2.0)
    monkeypatch.setattr(runner, "IMPORTS", {})
    report = run_load_test(prefix / "bin/python", compiler="")
    if "of the installed driver" in report.driver_libraries:
        pytest.skip("a driver is installed on this machine")
    assert "no C compiler" in report.driver_libraries
    (skipped,) = [result for result in report.results if result.distribution == "ondriver"]
    assert skipped.outcome == "skipped"
    assert "no C compiler" in skipped.message


def test_failing_torch_import_fails_each_file_that_needs_torch(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FILE_SECONDS", 2.0)
    monkeypatch.setattr(runner, "IMPORTS", {})
    init = next(prefix.glob("lib/python3.*/site-packages/torch/__init__.py"))
    code = init.read_text()
    init.write_text("raise ImportError('libtorch_cuda.so: undefined symbol: ncclCommRegister')\n")
    try:
        report = run_load_test(prefix / "bin/python")
    finally:
        init.write_text(code)
    results = {result.distribution: result for result in report.results}
    assert results["ontorch"].outcome == "failed"
    assert "ncclCommRegister" in results["ontorch"].message
    assert results["good"].outcome == "loaded"


def test_rejects_a_python_without_compiled_packages(tmp_path: Path) -> None:
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    with pytest.raises(BadInput, match="no compiled packages"):
        run_load_test(tmp_path / "bare/bin/python")
    with pytest.raises(BadInput):
        run_load_test(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "outcome", "message"),
    [
        ("OSError: /v/x.so: undefined symbol: ncclCommRegister", "missing-symbol",
         "needs the symbol ncclCommRegister (from nvidia-nccl), which is not defined"),
        ("OSError: /v/x.so: undefined symbol: foo, version V_2", "missing-symbol",
         "needs the symbol foo, which is not defined"),
        ("libcudart.so.11.0: cannot open shared object file: No such file or directory", "missing-library",
         "needs libcudart.so.11.0 (from nvidia-cuda-runtime-cu11), which was not found"),
        ("ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /v/x.so)", "missing-version",
         "ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /v/x.so)"),
        ("SystemError: initialisation failed", "failed", "SystemError: initialisation failed"),
    ],
)  # fmt: skip
def test_classify_loader_error(text: str, outcome: str, message: str) -> None:
    assert classify_loader_error(text) == (outcome, message)


def test_find_warnings_ignores_other_lines() -> None:
    output = (
        "WARNING 11-21 [_custom_ops.py:20] Failed to import from vllm._C with ImportError('libcuda.so.1')\n"
        "None of PyTorch, TensorFlow >= 2.0, or Flax have been found.\n"
        "INFO 11-21 [__init__.py:216] Automatically detected platform cpu.\nhello\n"
    )
    assert len(find_warnings(output)) == 2


def test_worker_count_is_limited_by_memory() -> None:
    assert worker_count(1 << 60) == 1
    assert worker_count(1) >= 1


def test_failing_compiler_is_reported(tmp_path: Path, prefix: Path) -> None:
    users = {"libcuda.so.1": [str(next(prefix.glob("lib/python3.*/site-packages/ondriver/_C.so")))]}
    libraries = prepare_driver_libraries(users, tmp_path, lambda _: "", "false")
    assert libraries.stubs == {}
    assert "false ended with exit code 1" in libraries.missing["libcuda.so.1"]
    assert prepare_driver_libraries(users, tmp_path, lambda name: f"/usr/lib/{name}").installed == ("libcuda.so.1",)
    assert prepare_driver_libraries({}, tmp_path, lambda _: "").description == ""


def test_abi_and_load_test_agree_on_missing_dependencies(prefix: Path, results: dict[str, LoadResult]) -> None:
    incomplete = {
        file.distribution for file in run_abi(AbiRequest(venv=str(prefix))).data.files if file.outcome == "missing"
    }
    assert incomplete == {"symbol", "library"}
    assert {name for name, each in results.items() if each.outcome.startswith("missing")} == incomplete
