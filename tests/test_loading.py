"""The load test: real files that load, lack something, crash and hang, in a real Python."""

from __future__ import annotations

import re
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack_place import add_distribution, compile_library

from envdoctor.core.errors import BadInput
from envdoctor.output.loading import load_test as lines_of
from envdoctor.verify.abi import abi
from envdoctor.verify.loading import Loaded, LoadTest, load_test, run_load_test, running
from envdoctor.verify.loading.messages import judge_words, matters
from envdoctor.verify.loading.running import workers_for
from envdoctor.verify.loading.standins import make_standins

EXTENSIONS = {
    "good": "int f(void) { return 1; }",
    "symbol": "extern void _ZNK3c106SymInt6sym_neERKS0_(void); void f(void) { _ZNK3c106SymInt6sym_neERKS0_(); }",
    "aborts": '#include <stdlib.h>\n#include <stdio.h>\n__attribute__((constructor)) static void f(void) {'
    ' fprintf(stderr, "terminate called\\n  what():  Tried to register twice\\n"); abort(); }',
    "segfaults": "__attribute__((constructor)) static void f(void) { *(volatile int *)8 = 1; }",
    "hangs": "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { for (;;) pause(); }",
    "exits": "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { _exit(7); }",
}  # fmt: skip
MODULES = {  # what the libraries are, for the imports
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
    """An environment of a real Python with files of every kind."""
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
    linked(
        site,
        "ontorch",
        site / "torch/lib/libc10.so",
        "extern int c10_here(void); int f(void) { return c10_here(); }",
    )
    cuda = compile_library(prefix / "libcuda.so.1", "int cuInit(int x) { return x; }", "-Wl,-soname,libcuda.so.1")
    linked(site, "ondriver", cuda, "extern int cuInit(int); int f(void) { return cuInit(0); }")
    gone = compile_library(prefix / "libgone.so.1", "int gone(void) { return 1; }", "-Wl,-soname,libgone.so.1")
    linked(site, "library", gone, "extern int gone(void); int f(void) { return gone(); }")
    cuda.unlink()
    gone.unlink()
    sibling = compile_library(
        site / "family/lib/libfamily.so", "int kin(void) { return 1; }", "-Wl,-soname,libfamily.so"
    )
    compile_library(site / "family/_C.so", "extern int kin(void); int f(void) { return kin(); }", str(sibling))
    add_distribution(site, "family", "1.0", files=("family/_C.so", "family/lib/libfamily.so"))
    return prefix


def linked(site: Path, name: str, library: Path, code: str) -> None:
    compile_library(site / name / "_C.so", code, f"-L{library.parent}", f"-l:{library.name}")
    add_distribution(site, name, "1.0", files=(f"{name}/_C.so",))


@pytest.fixture(scope="module")
def test(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoadTest, list[Loaded], int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("LD_LIBRARY_PATH", raising=False)
        patch.setattr(running, "FILE_SECONDS", 3.0)
        seen: list[Loaded] = []
        answer = load_test(prefix / "bin/python", on_result=seen.append)
        yield answer.data, seen, answer.exit_code


@pytest.fixture
def results(test: tuple[LoadTest, list[Loaded], int]) -> dict[str, Loaded]:
    return {result.distribution: result for result in test[0].results if result.name != "family/lib/libfamily.so"}


def test_each_file_is_told_by_what_became_of_it(results: dict[str, Loaded]) -> None:
    outcomes = {name: results[name].outcome for name in (*EXTENSIONS, "ontorch", "library", "family")}
    assert outcomes == {
        "good": "loaded", "symbol": "missing-symbol", "aborts": "aborted", "segfaults": "aborted",
        "hangs": "timed-out", "exits": "failed", "ontorch": "loaded", "library": "missing-library",
        "family": "loaded",
    }  # fmt: skip
    assert re.search(r"c10::SymInt::sym_ne.* torch should have", results["symbol"].message)
    assert results["aborts"].message == "was killed by SIGABRT: Tried to register twice"
    assert "SIGSEGV" in results["segfaults"].message
    assert results["library"].message.startswith("needs libgone.so.1")
    assert results["hangs"].seconds >= 2
    assert "exit code 7" in results["exits"].message


def test_what_needs_the_driver_loads_beside_a_stand_in(
    test: tuple[LoadTest, list[Loaded], int], results: dict[str, Loaded]
) -> None:
    if "of this machine's driver" in test[0].standins:
        pytest.skip("this machine has a libcuda.so.1 of its own")
    assert test[0].standins == "a stand-in for libcuda.so.1 with 1 functions"
    assert results["ondriver"].outcome == "loaded"


def test_imports_are_told_with_the_warnings_that_matter(results: dict[str, Loaded]) -> None:
    assert results["peft"].outcome == "loaded"
    assert results["bitsandbytes"].outcome == "loaded"
    assert results["bitsandbytes"].warnings == (
        "bitsandbytes library load error: libcudart.so.12: cannot open shared object file",
    )
    assert (results["trl"].outcome, results["trl"].message) == ("failed", "ImportError: No module named vllm_ascend")
    assert results["vllm"].outcome == "aborted"


def test_each_result_is_told_once_as_it_comes(test: tuple[LoadTest, list[Loaded], int]) -> None:
    whole, seen, code = test
    assert sorted(result.name for result in seen) == sorted(result.name for result in whole.results)
    assert code == 1
    text = "\n".join(str(getattr(part, "renderable", part)) for part in lines_of(whole))
    assert "4 of 10 compiled files load" in text
    assert "loaded with the files that need it" in text


def test_without_a_compiler_it_says_what_was_left_out(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FILE_SECONDS", 2.0)
    monkeypatch.setattr(running, "IMPORTS", {})
    whole = run_load_test(prefix / "bin/python", compiler="")
    if "of this machine's driver" in whole.standins:
        pytest.skip("this machine has a libcuda.so.1 of its own")
    assert "no C compiler" in whole.standins
    (left_out,) = [result for result in whole.results if result.distribution == "ondriver"]
    assert left_out.outcome == "left-out"
    assert "no C compiler" in left_out.message


def test_a_torch_that_does_not_import_is_told_for_each_file_that_needs_it(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FILE_SECONDS", 2.0)
    monkeypatch.setattr(running, "IMPORTS", {})
    init = next(prefix.glob("lib/python3.*/site-packages/torch/__init__.py"))
    code = init.read_text()
    init.write_text("raise ImportError('libtorch_cuda.so: undefined symbol: ncclCommRegister')\n")
    try:
        whole = run_load_test(prefix / "bin/python")
    finally:
        init.write_text(code)
    results = {result.distribution: result for result in whole.results}
    assert results["ontorch"].outcome == "failed"
    assert "ncclCommRegister" in results["ontorch"].message
    assert results["good"].outcome == "loaded"


def test_a_python_without_packages_is_refused(tmp_path: Path) -> None:
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    with pytest.raises(BadInput, match="no compiled packages"):
        load_test(tmp_path / "bare/bin/python")
    with pytest.raises(BadInput):
        load_test(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "outcome", "message"),
    [
        ("OSError: /v/x.so: undefined symbol: ncclCommRegister", "missing-symbol",
         "needs ncclCommRegister, which nvidia-nccl should have"),
        ("OSError: /v/x.so: undefined symbol: foo, version V_2", "missing-symbol", "needs foo"),
        ("libcudart.so.11.0: cannot open shared object file: No such file or directory", "missing-library",
         "needs libcudart.so.11.0, which is nowhere; it is in nvidia-cuda-runtime-cu11"),
        ("ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /v/x.so)", "missing-version",
         "ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /v/x.so)"),
        ("SystemError: initialisation failed", "failed", "SystemError: initialisation failed"),
    ],
)  # fmt: skip
def test_the_loaders_words_are_understood(text: str, outcome: str, message: str) -> None:
    assert judge_words(text) == (outcome, message)


def test_only_lines_that_matter_are_kept() -> None:
    said = (
        "WARNING 11-21 [_custom_ops.py:20] Failed to import from vllm._C with ImportError('libcuda.so.1')\n"
        "None of PyTorch, TensorFlow >= 2.0, or Flax have been found.\n"
        "INFO 11-21 [__init__.py:216] Automatically detected platform cpu.\nhello\n"
    )
    assert len(matters(said)) == 2


def test_work_is_bounded_by_memory_and_cores() -> None:
    assert workers_for(1 << 60) == 1
    assert workers_for(1) >= 1


def test_a_compiler_that_fails_is_no_accident(tmp_path: Path, prefix: Path) -> None:
    users = {"libcuda.so.1": [str(next(prefix.glob("lib/python3.*/site-packages/ondriver/_C.so")))]}
    made = make_standins(users, tmp_path, lambda _: "", "false")
    assert made.made == {}
    assert "false ended with exit code 1" in made.lacking["libcuda.so.1"]
    assert make_standins(users, tmp_path, lambda name: f"/usr/lib/{name}").real == ("libcuda.so.1",)
    assert make_standins({}, tmp_path, lambda _: "").words == ""


def test_reading_and_loading_agree_on_what_is_lacking(prefix: Path, results: dict[str, Loaded]) -> None:
    read = {file.distribution for file in abi(str(prefix)).data.files if file.outcome == "lacks"}
    assert read == {"symbol", "library"}
    assert {name for name, each in results.items() if each.outcome.startswith("missing")} == read
