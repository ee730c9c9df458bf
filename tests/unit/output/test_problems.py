"""Problems of probes, benchmarks, scans and load tests as GitHub annotations and as SARIF."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.benchmark_results import GOOD, SLOW, bench, measured
from support.cases import each_case
from support.command import envdoctor
from support.output_documents import annotations, sarif
from support.sample_environments import (
    add_distribution,
    add_torch,
    compile_library,
    compile_with_fatbin,
    fatbin_container,
    fatbin_entry,
    make_venv,
)

from envdoctor.binaries.coverage import TargetGpu, compute_coverage
from envdoctor.commands.abi import AbiReport, LinkedFile, MissingDependency
from envdoctor.commands.archs import ArchsReport, ScannedFile, UnreadableFile
from envdoctor.commands.audit import AuditsResult
from envdoctor.commands.audit_file import AuditResult
from envdoctor.commands.audit_file import UnreadableFile as UnreadableManifest
from envdoctor.core.records import KernelCode, ProbeResult, Verification
from envdoctor.knowledge.gpu_speeds import gpu_speeds
from envdoctor.manifests.inputs.coverage import Coverage
from envdoctor.output.problems import KINDS, find_problems
from envdoctor.verify.bench_records import BenchmarkResult
from envdoctor.verify.loading.records import LoadResult, LoadTest

FAILING = BenchmarkResult(
    "gemm", 1, "NVIDIA H200", 512.0, "TFLOP/s", "failing", healthy=gpu_speeds("NVIDIA H200")["gemm"].expected,
    healthy_from=657.0, causes=("the power cap of 400 W held the clocks", "another process used the GPU"),
)  # fmt: skip
CRASHED = BenchmarkResult("d2h", 0, "NVIDIA H200", None, "GB/s", "not-measured", "crashed: was killed by SIGSEGV")
ABI_PROBLEMS = AbiReport(
    origin="venv",
    torch="2.9.0",
    files=(
        LinkedFile(path="vllm/_C.abi3.so", distribution="vllm", outcome="missing",
                   missing=(MissingDependency("symbol", "_ZN3c10", "c10::SymInt::sym_ne", "torch"),)),
        LinkedFile(path="vllm/_moe_C.abi3.so", distribution="vllm", outcome="missing",
                   missing=(MissingDependency("library", "libcudart.so.11.0", "", "nvidia-cuda-runtime-cu11"),)),
        LinkedFile(path="cut/x.so", distribution="cut", outcome="unreadable", reason="truncated"),
        LinkedFile(path="fine.so", distribution="fine", outcome="ok"),
        LinkedFile(path="arm.so", distribution="fine", outcome="skipped", reason="built for aarch64"),
    ),
)  # fmt: skip
LOADS = LoadTest(
    python="python",
    driver_libraries="",
    results=(
        LoadResult(name="vllm/_C.abi3.so", kind="extension", distribution="vllm", outcome="missing-symbol",
               message="needs c10::x, which torch should have"),
        LoadResult(name="vllm/_moe_C.abi3.so", kind="extension", distribution="vllm", outcome="missing-symbol",
               message="needs c10::y, which torch should have"),
        LoadResult(name="trl:GRPOTrainer", kind="import", distribution="trl", outcome="timed-out",
               message="too slow"),
        LoadResult(name="bitsandbytes", kind="import", distribution="bitsandbytes", outcome="loaded",
               warnings=("native library not loaded",)),
        LoadResult(name="peft", kind="import", distribution="peft", outcome="loaded"),
        LoadResult(name="amd.so", kind="extension", distribution="triton", outcome="skipped", message="for AMD"),
    ),
    seconds=1.0,
)  # fmt: skip
VERIFIED = Verification(
    1, "/p", "2026-11-21", "", (), "", ("sdpa", "trl_grpo"),
    (ProbeResult("sdpa", "crashed", "was killed by SIGSEGV", 1.0, cause="two builds: pin torch"),),
)  # fmt: skip


def archs_report() -> ArchsReport:
    """Three files on an H200 with an old driver: without code, with PTX that is too new, and exempt."""
    gpu = TargetGpu("9.0", "NVIDIA H200", "525.60.13", "12.0")
    bare = KernelCode(native=("sm_80",), containers={"sm_80": 3})
    late = KernelCode(native=("sm_90",), ptx=("compute_90",), ptx_isa="8.7", containers={"sm_90": 1, "compute_90": 9})
    files = (
        ScannedFile(path="a/_C.so", distribution="a", code=bare, coverage=(compute_coverage(bare, gpu),)),
        ScannedFile(path="b/_C.so", distribution="b", code=late, coverage=(compute_coverage(late, gpu),)),
        ScannedFile(
            path="c/_C.so",
            distribution="c",
            code=bare,
            coverage=(compute_coverage(bare, gpu),),
            exempt_reason="chosen",
        ),
    )
    return ArchsReport(
        origin="venv", gpus=(gpu,), files=files, without_gpu_code=1, unreadable=(UnreadableFile("d.so", "truncated"),)
    )


def test_slow_and_failing_speeds_have_possible_causes() -> None:
    assert annotations(bench(GOOD, SLOW, FAILING, CRASHED)) == [
        ("warning", "copy within the GPU slow", "memory of GPU 0 3300 GB/s, slow (NVIDIA H200)"),
        (
            "error",
            "long matrix product failing",
            (
                "gemm of GPU 1 512 TFLOP/s, failing; healthy from 657 TFLOP/s (NVIDIA H200)\n"
                "possible causes: the power cap of 400 W held the clocks; another process used the GPU"
            ),
        ),
        (
            "error",
            "GPU to pinned host not measured",
            "d2h of GPU 0 not measured (NVIDIA H200)\ncrashed: was killed by SIGSEGV",
        ),
    ]
    assert annotations(bench(GOOD, measured("gemm", 5.0, "unknown"))) == []


@each_case(("others", "level"), [((GOOD,), "warning"), ((), "error")])
def test_a_missing_measurement_is_an_error_if_none_succeeded(others: tuple[BenchmarkResult, ...], level: str) -> None:
    absent = BenchmarkResult("d2h", 0, "x", None, "GB/s", "not-measured", "unavailable: torch is not installed")
    assert [level for level, _, _ in annotations(bench(*others, absent))] == [level]


def test_missing_dependencies_are_combined_by_package() -> None:
    assert annotations(ABI_PROBLEMS) == [
        (
            "error",
            "vllm: missing libraries or symbols",
            (
                "vllm/_C.abi3.so: needs the symbol c10::SymInt::sym_ne (from torch), which is not defined\n"
                "vllm/_moe_C.abi3.so: needs libcudart.so.11.0 (from nvidia-cuda-runtime-cu11), which was not found"
            ),
        ),
        ("warning", "compiled files that cannot be read", "cut/x.so: truncated"),
    ]


def test_files_without_code_for_a_gpu_and_ptx_too_new_for_its_driver() -> None:
    assert annotations(archs_report()) == [
        ("error", "no code for 9.0 (NVIDIA H200)", "a/_C.so: it has code for sm_80"),
        (
            "warning",
            "PTX too new for 9.0 (NVIDIA H200)",
            "b/_C.so: PTX ISA 8.7 needs driver 570.26 or newer; the installed driver is 525.60.13",
        ),
        ("warning", "compiled files that cannot be read", "d.so: truncated"),
    ]


def test_load_failures_and_load_warnings() -> None:
    assert annotations(LOADS) == [
        (
            "error",
            "vllm does not load: missing symbol",
            (
                "vllm/_C.abi3.so: needs c10::x, which torch should have\n"
                "vllm/_moe_C.abi3.so: needs c10::y, which torch should have"
            ),
        ),
        ("error", "trl does not load: timed out", "import trl:GRPOTrainer: too slow"),
        ("warning", "bitsandbytes loads with a warning", "import bitsandbytes: native library not loaded"),
    ]


def test_probes_with_their_likely_cause() -> None:
    assert annotations(VERIFIED) == [
        ("error", "sdpa crashed", "was killed by SIGSEGV\ntwo builds: pin torch"),
        ("error", "trl_grpo was not run", "the probe trl_grpo is required and has no result"),
    ]


def test_an_annotation_counts_the_messages_that_it_omits() -> None:
    files = tuple(
        LinkedFile(
            path=f"{n}.so",
            distribution="vllm",
            outcome="missing",
            missing=(MissingDependency("symbol", "x", "x", ""),),
        )
        for n in range(500)
    )
    ((_, _, message),) = annotations(AbiReport(origin="venv", torch="", files=files))
    assert message.splitlines()[-1] == "and 480 more"


@each_case(
    ("data", "expected"),
    [
        (bench(GOOD, SLOW, FAILING, CRASHED),
         [("speed-slow", "warning", "memory_0"), ("speed-failing", "error", "gemm_1"),
          ("speed-not-measured", "error", "d2h_0")]),
        (ABI_PROBLEMS, [("abi-symbol", "error", "vllm/_C.abi3.so"), ("abi-library", "error", "vllm/_moe_C.abi3.so"),
                 ("file-unread", "warning", "cut/x.so")]),
        (archs_report(), [("archs-none", "error", "a/_C.so for 9.0"), ("archs-driver", "warning", "b/_C.so for 9.0"),
                     ("file-unread", "warning", "d.so")]),
        (LOADS, [("load-failed", "error", "vllm/_C.abi3.so"), ("load-failed", "error", "vllm/_moe_C.abi3.so"),
                 ("load-failed", "error", "trl:GRPOTrainer"), ("load-warning", "warning", "bitsandbytes")]),
        (VERIFIED, [("probe-failed", "error", "sdpa"), ("probe-not-run", "error", "trl_grpo")]),
    ],
    ids=["bench", "abi", "archs", "load", "verify"],
)  # fmt: skip
def test_each_problem_is_a_sarif_result_with_a_described_kind(
    data: Any, expected: list[tuple[str, str, str]]
) -> None:
    run = sarif(data)
    found = [
        (r["ruleId"], r["level"], r["locations"][0]["logicalLocations"][0]["fullyQualifiedName"])
        for r in run["results"]
    ]
    assert found == expected
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert rules[result["ruleIndex"]]["fullDescription"]["text"] == KINDS[result["ruleId"]]
    prints = [result["partialFingerprints"]["envdoctor/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)


def test_a_problem_is_located_at_its_file() -> None:
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in sarif(LOADS)["results"]]
    assert uris == ["vllm/_C.abi3.so", "vllm/_moe_C.abi3.so", "envdoctor", "envdoctor"]


def test_a_fingerprint_does_not_depend_on_the_values() -> None:
    def fingerprint(value: float) -> str:
        (result,) = sarif(bench(measured("gemm", value, "slow")))["results"]
        return str(result["partialFingerprints"]["envdoctor/v1"])

    assert fingerprint(640.0) == fingerprint(600.0)


def test_every_kind_occurs() -> None:
    every = (bench(GOOD, SLOW, FAILING, CRASHED), ABI_PROBLEMS, archs_report(), LOADS, VERIFIED)
    version = AbiReport(
        origin="", torch="", files=(
            LinkedFile(path="x.so", distribution="x", outcome="missing",
                       missing=(MissingDependency("version", "G", "", ""),)),
        ),
    )  # fmt: skip
    unread = AuditsResult(audits=(), unreadable=(UnreadableManifest("a.lock", "is not TOML"),))
    coverage = Coverage(packages=1, judged=1, steps=0, unread=("vllm: the version '' is invalid",))
    environment = AuditResult(name="venv", kind="environment", coverage=coverage, findings=())
    manifest = AuditResult(name="requirements.txt", kind="requirements", coverage=coverage, findings=())
    results = (*every, version, unread, environment, manifest)
    assert {problem.kind for data in results for problem in find_problems(data)} == set(KINDS)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with a file that needs a missing symbol of torch, and one without code for new GPUs."""
    site = make_venv(tmp_path / "venv")
    add_torch(site)
    compile_library(
        site / "vllm/_C.so", "extern void _ZN3c106detail3newEv(void); void f(void) { _ZN3c106detail3newEv(); }"
    )
    compile_with_fatbin(site / "mine/_K.so", fatbin_container(fatbin_entry(2, 80)))
    add_distribution(site, "vllm", "0.10.2", files=("vllm/_C.so",))
    add_distribution(site, "mine", "1", files=("mine/_K.so",))
    return tmp_path / "venv"


def test_abi_and_archs_print_problems(venv: Path, tmp_path: Path) -> None:
    done = envdoctor("abi", venv, "--format", "github", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "::error title=vllm%3A missing libraries or symbols::vllm/_C.so: needs the symbol c10"
    )
    done = envdoctor("archs", venv, "--cc", "12.0", "--format", "github", home=tmp_path)
    assert done.stdout == "::error title=no code for 12.0::mine/_K.so: it has code for sm_80\n"
    done = envdoctor("archs", venv, "--cc", "12.0", "--format", "sarif", home=tmp_path)
    (result,) = json.loads(done.stdout)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("archs-none", "error")


def test_a_load_test_prints_problems(venv: Path, tmp_path: Path) -> None:
    done = envdoctor("load-test", "--venv", venv, "--format", "github", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("::error title=vllm does not load%3A ")
    assert "vllm/_C.so" in done.stdout


def test_a_required_probe_that_cannot_run_is_reported(tmp_path: Path) -> None:
    """This Python has no torch, which any training needs."""
    arguments = ("verify", "--only", "torch_matmul", "--python", sys.executable, "--format")
    done = envdoctor(*arguments, "github", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout == "::error title=torch_matmul unavailable::torch is not installed\n"
    (result,) = json.loads(envdoctor(*arguments, "sarif", home=tmp_path).stdout)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("probe-failed", "error")
