"""`verify --bench`: graded by what healthy GPUs do; causes need a fact that speaks for them; scripts fail alone."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import ROOT, envdoctor, envelope
from fakenvml.fixture import FakeNvml, machine_ini
from rich.console import Console

from envdoctor.core import processes as process
from envdoctor.core.records import (
    Clocks,
    Fabric,
    Fact,
    Gpu,
    NvLink,
    PcieLink,
    ProbeResult,
    Process,
    RemappedRows,
    absent,
    known,
)
from envdoctor.knowledge.gpu_speeds import GpuSpeed, gpu_speed_table, gpu_speeds, pcie_speed
from envdoctor.machine.gpu import READERS
from envdoctor.machine.gpu_sampler import GpuSample
from envdoctor.output.bench import bench as rendered
from envdoctor.output.console import THEME
from envdoctor.verify import bench
from envdoctor.verify import runner as verify
from envdoctor.verify.bench_causes import likely_causes
from envdoctor.verify.bench_records import BenchmarkReport, LoadSummary, expected_speed, grade, summarize_load
from envdoctor.verify.probe_scripts import bundled_benchmarks

H200_LINK = PcieLink(5, 16, 5, 16)


def gpu(name: str = "NVIDIA H200", index: int = 0, **facts: Any) -> Gpu:
    """A GPU of which NVML tells only what is given."""
    given: dict[str, Fact[Any]] = {key: known(value, "NVML") for key, value in facts.items()}
    nothing: Fact[Any] = absent("NVML")
    return Gpu(index=index, **(dict.fromkeys(READERS, nothing) | {"name": known(name, "NVML")} | given))


def samples(count: int, *, sm: int = 1980, reasons: tuple[str, ...] = (), **fields: Any) -> list[GpuSample]:
    return [
        GpuSample(when=100.0 + n / 10, gpu=0, clocks=Clocks(sm, 3201, 1980), throttle_reasons=reasons, **fields)
        for n in range(count)
    ]


# --- the table


@pytest.mark.parametrize("row", gpu_speed_table(), ids=lambda row: f"{row.gpu} {row.measure}")
def test_every_row_is_in_order_and_says_where_from(row: GpuSpeed) -> None:
    assert 0 < row.failing_below < row.healthy_from < row.peak
    assert row.typical is None or row.healthy_from <= row.typical <= row.peak
    assert "/" in row.source or "measured" in row.source
    assert row.why
    assert row.date
    assert {other.pattern for other in gpu_speed_table() if other.gpu == row.gpu} == {row.pattern}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"), ("NVIDIA GH200 480GB", "GH200 96 GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144 GB"), ("NVIDIA A100-SXM4-40GB", "A100 SXM 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"), ("NVIDIA A100 80GB PCIe", "A100 PCIe"),
        ("NVIDIA L4", "L4"), ("NVIDIA L40S", "L40S"), ("NVIDIA A10", "A10"), ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"), ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA B200", "B200 and B300"), ("NVIDIA GB200", "GB200"), ("NVIDIA L40", None),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None), ("NVIDIA GeForce RTX 4090 D", None), ("Tesla T40", None),
    ],
)  # fmt: skip
def test_names_as_nvml_tells_them_find_their_row(name: str, row: str | None) -> None:
    assert {found.gpu for found in gpu_speeds(name).values()} == ({row} if row else set())


# --- grades, with numbers that were measured on H200s


@pytest.mark.parametrize(
    ("measure", "value", "expected"),
    [
        ("gemm", 788, "healthy"), ("gemm", 769, "healthy"), ("gemm", 640, "slow"), ("gemm", 500, "failing"),
        ("memory", 4300, "healthy"), ("memory", 3500, "slow"), ("memory", 2000, "failing"),
        ("peer", 372, "healthy"), ("peer", 50, "failing"), ("allreduce_64mb", 269, "healthy"),
        ("allreduce_1gb", 329, "healthy"), ("allreduce_1gb", 20, "failing"), ("h2d", 52, "healthy"),
        ("h2d", 24, "failing"), ("gemm", None, "not-measured"),
    ],
)  # fmt: skip
def test_an_h200_is_graded_by_what_h200s_do(measure: Any, value: float | None, expected: str) -> None:
    machine = gpu(pcie=H200_LINK, nvlink=NvLink(18, 18))
    assert grade(value, expected_speed(measure, machine)) == expected


def test_what_nothing_is_known_of_is_not_graded() -> None:
    unknown = gpu("NVIDIA Z9", pcie=PcieLink(4, 16, 4, 16))
    assert grade(500, expected_speed("gemm", unknown)) == "unknown"
    assert grade(20, expected_speed("h2d", unknown)) == "slow"  # its PCIe link is known
    assert expected_speed("h2d", gpu("NVIDIA Z9")) is None
    assert expected_speed("peer", gpu(pcie=H200_LINK)) is None  # no NVLink: the row is for NVLink
    assert pcie_speed(9, 16) is None
    eight = pcie_speed(4, 8)
    assert eight is not None
    assert eight.typical == pytest.approx(12.4)
    c2c = expected_speed("h2d", gpu("NVIDIA GH200 480GB", pcie=H200_LINK))
    assert c2c is not None
    assert c2c.typical == 350


# --- causes


def cause(measure: Any, machine: Gpu, load: LoadSummary | None = None, **versions: str) -> str:
    return "\n".join(likely_causes(measure, machine, load, versions))


def test_clocks_that_were_held_are_told_with_their_numbers() -> None:
    load = summarize_load(
        samples(10, sm=1200, reasons=("power-cap",), power=398.0, power_limit=400.0, temperature=61)
    )
    assert load is not None
    assert (load.samples, load.sm_clock, load.power, load.temperature) == (10, 1200, 398.0, 61)
    assert load.throttle_reasons == {"power-cap": 1.0}
    said = cause("gemm", gpu(), load)
    assert "the power cap of 400 W held the clocks at 1200 of 1980 MHz" in said
    assert "100% of 10 samples" in said
    hot = summarize_load(samples(10, sm=900, reasons=("sw-thermal",), temperature=88))
    assert "at 88 °C" in cause("gemm", gpu(), hot)
    seldom = summarize_load([*samples(9), *samples(1, reasons=("power-cap",))])
    assert cause("gemm", gpu(), seldom) == "no fact that NVML tells speaks for a cause"
    assert "no reason was told" in cause("gemm", gpu(), summarize_load(samples(3, sm=600)))
    assert cause("h2d", gpu(pcie=H200_LINK), load) == "no fact that NVML tells speaks for a cause"


def test_a_narrow_link_is_judged_under_load() -> None:
    narrow = summarize_load(samples(3, pcie=PcieLink(5, 8, 5, 16)))
    assert "the PCIe link has 8 of 16 lanes" in cause("h2d", gpu(pcie=PcieLink(1, 8, 5, 16)), narrow)
    slow = summarize_load([*samples(3, pcie=PcieLink(1, 16, 5, 16)), *samples(3, pcie=PcieLink(4, 16, 5, 16))])
    said = cause("d2h", gpu(pcie=PcieLink(1, 16, 5, 16)), slow)
    assert "ran at generation 4 of 5 under load" in said
    assert "lanes" not in said


def test_others_on_the_gpu_errors_and_slices_are_told() -> None:
    assert "process 77 ran on it" in cause("gemm", gpu(processes=(Process(77, "compute"),)))
    assert "5.0 GiB were in use" in cause("memory", gpu(memory_used=5 << 30))
    assert "MIG is on" in cause("gemm", gpu(mig=True))
    assert "3 uncorrected errors" in cause("memory", gpu(ecc_uncorrected=3))
    assert "wait for a reset" in cause("memory", gpu(remapped_rows=RemappedRows(0, 1, True, False)))
    assert "ECC is on" in cause("memory", gpu("NVIDIA L40S", ecc=True))
    assert "ECC" not in cause("memory", gpu(ecc=True))  # HBM has it for nothing


def test_links_between_gpus_are_told() -> None:
    assert "12 of 18 NVLinks" in cause("peer", gpu(nvlink=NvLink(18, 12)))
    assert "fabric is in progress" in cause("allreduce_1gb", gpu(fabric=Fabric("in progress")))
    assert "NCCL went by SHM/direct" in cause("allreduce_1gb", gpu(), transport="SHM/direct")
    assert "NCCL went" not in cause("allreduce_1gb", gpu(), transport="P2P/CUMEM")
    assert "through the host" in cause("peer", gpu(), peer_access="no")


# --- what a script wrote, and the samples of its window


def test_torchs_numbers_are_held_to_gpus_by_uuid() -> None:
    two = [gpu(index=0, uuid="GPU-aaa"), gpu(index=1, uuid="GPU-bbb")]
    assert [g.index for g in bench.number_gpus(("bbb", "aaa"), two).values()] == [1, 0]
    assert [g.index for g in bench.number_gpus(("GPU-bbb",), two).values()] == [1]
    assert [g.index for g in bench.number_gpus((), two).values()] == [0, 1]
    assert [g.index for g in bench.number_gpus(("",), two).values()] == [0]


def test_only_samples_of_the_window_and_the_gpu_count() -> None:
    numbers = {"gemm_0": 500.0, "gemm_0_began": 100.2, "gemm_0_ended": 100.5}
    idle = samples(2, sm=345, reasons=("idle",))
    late = [msgspec.structs.replace(s, when=100.6) for s in samples(2, sm=345)]
    other = [msgspec.structs.replace(s, gpu=1, when=100.3) for s in samples(2, sm=345)]
    busy = samples(6, sm=1200, reasons=("power-cap",))[2:]
    run = ProbeResult(probe="bench_gemm", outcome="passed", message="", seconds=1, numbers=numbers)
    (result,) = bench.results_of(run, [gpu()], [*idle, *busy, *late, *other])
    assert (result.value, result.unit, result.grade) == (500.0, "TFLOP/s", "failing")
    assert result.load is not None
    assert result.load.sm_clock == 1200
    assert "power cap" in result.causes[0]


# --- a whole run: scripts in processes of their own, NVML a fake library

GOOD = """
import json, os, sys, time
DEADLINE_SECONDS = 30
NEEDS_GPU = True
BENCH = True
began = time.time()
time.sleep(0.8)
numbers = {"gemm_0": 500.0, "gemm_0_began": began, "gemm_0_ended": time.time(), "gemm_1": 790.0}
open(sys.argv[1], "w").write(json.dumps({"outcome": "passed", "message": "fine", "numbers": numbers}))
"""
BAD = "DEADLINE_SECONDS = 30\nNEEDS_GPU = True\nBENCH = True\nimport a_library_that_is_not_there\n"
RUN = """
import sys
from pathlib import Path
import msgspec
from envdoctor.verify import bench, probe_scripts
folder, python = Path(sys.argv[1]), sys.argv[2]
bench.bundled_benchmarks = lambda: probe_scripts.read_probes(folder)
answer = bench.bench("", python)
print(msgspec.json.encode([answer.exit_code, answer.data]).decode())
"""
TWO_GPUS = ("[system]", "count = 2", "[gpu]", "clock.1 = 1290", "clock_reasons = 0x4", "power_mw = 699000")


@pytest.fixture
def measured(fake_nvml: FakeNvml, tmp_path: Path) -> tuple[int, BenchmarkReport, Path]:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "bench_gemm.py").write_text(GOOD)
    (folder / "bench_memory.py").write_text(BAD)
    (folder / "bench_allreduce.py").write_text(BAD.replace("BENCH", "GPUS = 3\nBENCH"))
    environment = fake_nvml(machine_ini("h200", *TWO_GPUS)) | {
        "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RUN, folder, sys.executable], env=environment, capture_output=True, check=True
    )
    code, data = msgspec.json.decode(done.stdout, type=tuple[int, BenchmarkReport])
    return code, data, tmp_path / "state"


def test_a_run_grades_samples_and_survives_a_script_that_fails(measured: tuple[int, BenchmarkReport, Path]) -> None:
    code, data, state = measured
    by_key = {(result.measure, result.gpu): result for result in data.results}
    assert set(by_key) == {("gemm", 0), ("gemm", 1), ("memory", 0), ("memory", 1)}  # three GPUs are not there
    assert (code, data.passed) == (1, False)
    failing = by_key["gemm", 0]
    assert failing.grade == "failing"
    assert failing.load is not None
    assert failing.load.samples >= 4
    assert failing.load.throttle_reasons == {"power-cap": 1.0}
    assert "the power cap of 700 W held the clocks at 1290 of 1980 MHz" in failing.causes[0]
    assert (by_key["gemm", 1].grade, by_key["gemm", 1].causes) == ("healthy", ())
    assert by_key["memory", 0].grade == "not-measured"
    assert "a_library_that_is_not_there" in by_key["memory", 0].message
    (kept,) = state.rglob("*.bench.json")
    assert msgspec.json.decode(kept.read_bytes(), type=BenchmarkReport) == data
    assert "GPU-0000" not in kept.read_text()


def test_people_read_it_in_80_columns(measured: tuple[int, BenchmarkReport, Path]) -> None:
    page = io.StringIO()
    console = Console(file=page, width=80, theme=THEME, highlight=False)
    for part in rendered(measured[1]):
        console.print(part)
    text = page.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for said in ("16-bit matrix product", "500 TFLOP/s", "657 to 989", "failing", "power-cap 100%", "1290",
                 "68% of what is typical; it may be:", "1 healthy, 1 failing, 2 not-measured"):  # fmt: skip
        assert said in text


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = envdoctor("verify", "--bench", "--python", sys.executable, home=tmp_path)
    assert done.returncode == 1
    assert "there is no GPU to measure" in done.stderr
    assert "no NVIDIA driver" in done.stderr


def test_it_runs_no_probes(tmp_path: Path) -> None:
    done = envdoctor("verify", "--bench", "--only", "sdpa", "--python", sys.executable, home=tmp_path)
    assert done.returncode == 2
    assert "--bench cannot be combined with --only" in done.stderr


def test_bundled_scripts_without_torch_say_so_and_nothing_passes(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    environment = fake_nvml(machine_ini("h200"))
    done = envdoctor("verify", "--bench", "--python", sys.executable, "--format", "json", home=tmp_path,
                     LD_LIBRARY_PATH=environment["LD_LIBRARY_PATH"],
                     FAKE_NVML_CONFIG=environment["FAKE_NVML_CONFIG"])  # fmt: skip
    data = envelope(done)["data"]
    assert done.returncode == 1
    assert {result["measure"] for result in data["results"]} == {"gemm", "memory", "h2d", "d2h"}  # one GPU
    assert {result["grade"] for result in data["results"]} == {"not-measured"}
    assert all("torch is not installed" in result["message"] for result in data["results"])


# --- the scripts' numeric core on CPU tensors

CORE = """
import json, sys; sys.path.insert(0, {probes!r})
import torch
from _result import Result
import bench_allreduce, bench_gemm, bench_host, bench_memory, bench_peer
result, cpu = Result(), torch.device("cpu")
brief = {{"warm": 0.05, "seconds": 0.2}}
bench_gemm.multiply(result, 0, cpu, torch.float32, 256, **brief)
bench_memory.copy(result, 0, cpu, 8 << 20, **brief)
bench_host.copy(result, 0, cpu, torch.full((4 << 20,), 7, dtype=torch.uint8), **brief)
bench_peer.copy(result, 0, cpu, cpu, 4 << 20, **brief)
bench_allreduce.measure_ranks(result, "gloo", 2, {{"allreduce_64mb": 1 << 20, "allreduce_1gb": 2 << 20}})
open({report!r}, "w").write(json.dumps([result.numbers, result.faults]))
"""


@pytest.mark.stack
def test_the_scripts_measure_and_keep_their_windows(stack_python: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code = CORE.format(probes=str(verify.PROBES_FOLDER), report=str(report))
    finished = process.run([stack_python, "-c", code], deadline=120, env=verify.probe_variables(tmp_path))
    assert finished.ok, finished.output
    numbers, faults = json.loads(report.read_text())
    assert faults == []
    for key in ("gemm_0", "memory_0", "h2d_0", "d2h_0", "peer_0", "allreduce_64mb", "allreduce_1gb"):
        assert numbers[key] > 0
        assert numbers[f"{key}_ended"] - numbers[f"{key}_began"] > 0.1
        assert numbers[f"{key}_spread"] >= 0
    assert numbers["memory_0"] < 1000  # GB/s: no memory of a CPU is faster
    assert (numbers["gpus"], numbers["wrong_elements"]) == (2, 0)


def test_every_benchmark_has_its_measures() -> None:
    names = {script.name for script in bundled_benchmarks()}
    assert names == set(bench.MEASURES)
    assert {script.name for script in bundled_benchmarks() if script.gpus == 2} == {"bench_peer", "bench_allreduce"}
