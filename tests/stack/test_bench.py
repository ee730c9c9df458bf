"""`bench`: grades, causes supported by facts, and scripts that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.command import envdoctor, envelope
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.paths import ROOT
from support.probe_runs import run_in_stack

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
from envdoctor.output.bench import render_benchmark
from envdoctor.output.layout import lines
from envdoctor.verify import bench
from envdoctor.verify.bench_causes import likely_causes
from envdoctor.verify.bench_records import BenchmarkReport, LoadSummary, expected_speed, grade, summarize_load
from envdoctor.verify.probe_scripts import PROBES_FOLDER, bundled_benchmarks

H200_LINK = PcieLink(5, 16, 5, 16)


def gpu(name: str = "NVIDIA H200", index: int = 0, **facts: Any) -> Gpu:
    """A GPU with these facts; all others are absent."""
    known_facts: dict[str, Fact[Any]] = {key: known(value, "NVML") for key, value in facts.items()}
    no_fact: Fact[Any] = absent("NVML")
    return Gpu(index=index, **(dict.fromkeys(READERS, no_fact) | {"name": known(name, "NVML")} | known_facts))


def samples(count: int, *, sm: int = 1980, reasons: tuple[str, ...] = (), **fields: Any) -> list[GpuSample]:
    return [
        GpuSample(when=100.0 + n / 10, gpu=0, clocks=Clocks(sm, 3201, 1980), throttle_reasons=reasons, **fields)
        for n in range(count)
    ]


# --- the table


@pytest.mark.parametrize("row", gpu_speed_table(), ids=lambda row: f"{row.gpu} {row.measure}")
def test_every_row_is_ordered_and_has_a_source(row: GpuSpeed) -> None:
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
def test_row_of_nvml_name(name: str, row: str | None) -> None:
    assert {found.gpu for found in gpu_speeds(name).values()} == ({row} if row else set())


# --- grades, with numbers that were measured on H200s


@pytest.mark.parametrize(
    ("measure", "value", "expected"),
    [
        ("gemm_burst", 788, "healthy"), ("gemm_burst", 769, "healthy"), ("gemm_burst", 640, "slow"),
        ("gemm", 671, "healthy"), ("gemm", 600, "slow"), ("gemm", 500, "failing"),
        ("memory", 4300, "healthy"), ("memory", 3500, "slow"), ("memory", 2000, "failing"),
        ("peer", 372, "healthy"), ("peer", 50, "failing"), ("allreduce_64mb", 269, "healthy"),
        ("allreduce_1gb", 329, "healthy"), ("allreduce_1gb", 20, "failing"), ("h2d", 52, "healthy"),
        ("h2d", 24, "failing"), ("gemm", None, "not-measured"),
    ],
)  # fmt: skip
def test_grades_of_an_h200(measure: Any, value: float | None, expected: str) -> None:
    machine = gpu(pcie=H200_LINK, nvlink=NvLink(18, 18))
    assert grade(value, expected_speed(measure, machine)) == expected


def test_unknown_gpu_is_not_graded() -> None:
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


def test_throttled_clocks_are_reported_with_numbers() -> None:
    load = summarize_load(
        samples(10, sm=1200, reasons=("power-cap",), power=398.0, power_limit=400.0, temperature=61)
    )
    assert load is not None
    assert (load.samples, load.sm_clock, load.power, load.temperature) == (10, 1200, 398.0, 61)
    assert load.throttle_reasons == {"power-cap": 1.0}
    text = cause("gemm", gpu(), load)
    assert "the power cap of 400 W limited the clocks at 1200 of 1980 MHz" in text
    assert "100% of 10 samples" in text
    hot = summarize_load(samples(10, sm=900, reasons=("sw-thermal",), temperature=88))
    assert "at 88 °C" in cause("gemm", gpu(), hot)
    rare = summarize_load([*samples(9), *samples(1, reasons=("power-cap",))])
    assert cause("gemm", gpu(), rare) == "no NVML fact indicates a cause"
    assert "for an unknown reason" in cause("gemm", gpu(), summarize_load(samples(3, sm=600)))
    assert cause("h2d", gpu(pcie=H200_LINK), load) == "no NVML fact indicates a cause"


def test_pcie_link_is_checked_under_load() -> None:
    narrow = summarize_load(samples(3, pcie=PcieLink(5, 8, 5, 16)))
    assert "the PCIe link has 8 of 16 lanes" in cause("h2d", gpu(pcie=PcieLink(1, 8, 5, 16)), narrow)
    slow = summarize_load([*samples(3, pcie=PcieLink(1, 16, 5, 16)), *samples(3, pcie=PcieLink(4, 16, 5, 16))])
    text = cause("d2h", gpu(pcie=PcieLink(1, 16, 5, 16)), slow)
    assert "ran at generation 4 of 5 under load" in text
    assert "lanes" not in text


def test_causes_of_sharing_memory_errors_and_mig() -> None:
    assert "process 77 ran on it" in cause("gemm", gpu(processes=(Process(77, "compute"),)))
    assert "5.0 GiB were in use" in cause("memory", gpu(memory_used=5 << 30))
    assert "MIG is enabled" in cause("gemm", gpu(mig=True))
    assert "3 uncorrected errors" in cause("memory", gpu(ecc_uncorrected=3))
    assert "at the next reset" in cause("memory", gpu(remapped_rows=RemappedRows(0, 1, True, False)))
    assert "ECC is enabled" in cause("memory", gpu("NVIDIA L40S", ecc=True))
    assert "ECC" not in cause("memory", gpu(ecc=True))  # no cost with HBM


def test_causes_of_slow_links() -> None:
    assert "12 of 18 NVLinks" in cause("peer", gpu(nvlink=NvLink(18, 12)))
    assert "fabric is in progress" in cause("allreduce_1gb", gpu(fabric=Fabric("in progress")))
    assert "NCCL used SHM/direct" in cause("allreduce_1gb", gpu(), transport="SHM/direct")
    assert "NCCL used" not in cause("allreduce_1gb", gpu(), transport="P2P/CUMEM")
    assert "through the host" in cause("peer", gpu(), peer_access="no")


# --- results of one script and the samples during its measurement


def test_torch_gpu_numbers_are_mapped_by_uuid() -> None:
    two = [gpu(index=0, uuid="GPU-aaa"), gpu(index=1, uuid="GPU-bbb")]
    assert [g.index for g in bench.number_gpus(("bbb", "aaa"), two).values()] == [1, 0]
    assert [g.index for g in bench.number_gpus(("GPU-bbb",), two).values()] == [1]
    assert [g.index for g in bench.number_gpus((), two).values()] == [0, 1]
    assert [g.index for g in bench.number_gpus(("",), two).values()] == [0]


def test_only_samples_of_the_measurement_and_gpu_are_used() -> None:
    numbers = {"gemm_burst_1": 790.0, "gemm_0": 500.0, "gemm_0_began": 100.2, "gemm_0_ended": 100.5}
    idle = samples(2, sm=345, reasons=("idle",))
    late = [msgspec.structs.replace(s, when=100.6) for s in samples(2, sm=345)]
    other = [msgspec.structs.replace(s, gpu=1, when=100.3) for s in samples(2, sm=345)]
    busy = samples(6, sm=1200, reasons=("power-cap",))[2:]
    run = ProbeResult(probe="bench_gemm", outcome="passed", message="", seconds=1, numbers=numbers)
    burst, result = bench.results_of(run, [gpu()], [*idle, *busy, *late, *other])
    assert burst.grade == "not-measured"
    assert (result.value, result.unit, result.grade) == (500.0, "TFLOP/s", "failing")
    assert result.load is not None
    assert result.load.sm_clock == 1200
    assert "power cap" in result.causes[0]


@pytest.mark.parametrize(
    ("burst", "reasons", "grade_of_sustained"),
    [
        (780.0, ("power-cap",), "healthy"),
        (500.0, ("power-cap",), "failing"),
        (780.0, ("power-cap", "sw-thermal"), "failing"),
        (780.0, (), "failing"),
    ],
)
def test_a_power_limit_explains_a_low_speed_only_of_a_gpu_that_is_fast_in_bursts(
    burst: float, reasons: tuple[str, ...], grade_of_sustained: str
) -> None:
    numbers = {"gemm_burst_0": burst, "gemm_0": 480.0, "gemm_0_began": 100.0, "gemm_0_ended": 101.0}
    run = ProbeResult(probe="bench_gemm", outcome="passed", message="", seconds=1, numbers=numbers)
    during = [msgspec.structs.replace(sample, when=100.5) for sample in samples(4, sm=1200, reasons=reasons)]
    sustained = bench.results_of(run, [gpu()], during)[1]
    assert (sustained.measure, sustained.grade) == ("gemm", grade_of_sustained)
    assert any("power cap" in cause for cause in sustained.causes) == ("power-cap" in reasons)


def test_the_sustained_speed_without_a_measurement_is_a_share_of_the_burst() -> None:
    speeds = gpu_speeds("NVIDIA A10G")
    assert speeds["gemm"].typical == pytest.approx(0.8 * (speeds["gemm_burst"].typical or 0))
    assert "was not measured" in speeds["gemm"].why
    assert gpu_speeds("NVIDIA H100 80GB HBM3")["gemm"].typical == 690


# --- a complete run with real processes and a fake NVML library

GOOD = """
import json, os, sys, time
DEADLINE_SECONDS = 30
NEEDS_GPU = True
BENCH = True
began = time.time()
time.sleep(0.8)
numbers = {"gemm_0": 500.0, "gemm_0_began": began, "gemm_0_ended": time.time()}
numbers |= {"gemm_burst_1": 790.0, "gemm_1": 690.0}
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
report = bench.run_bench(Path(python))
print(msgspec.json.encode(report).decode())
"""
TWO_GPUS = ("[system]", "count = 2", "[gpu]", "clock.1 = 1290", "clock_reasons = 0x4", "power_mw = 699000")


@pytest.fixture
def measured(fake_nvml: FakeNvml, tmp_path: Path) -> tuple[BenchmarkReport, Path]:
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
    return msgspec.json.decode(done.stdout, type=BenchmarkReport), tmp_path / "state"


def test_run_grades_measurements_and_continues_after_a_failed_script(measured: tuple[BenchmarkReport, Path]) -> None:
    report, state = measured
    by_key = {(result.measure, result.gpu): result for result in report.results}
    measures = ("gemm_burst", "gemm", "memory")  # bench_allreduce needs three
    assert set(by_key) == {(measure, index) for measure in measures for index in (0, 1)}
    assert not report.passed
    failing = by_key["gemm", 0]
    assert failing.grade == "failing"
    assert failing.load is not None
    assert failing.load.samples >= 4
    assert failing.load.throttle_reasons == {"power-cap": 1.0}
    assert "the power cap of 700 W limited the clocks at 1290 of 1980 MHz" in failing.causes[0]
    assert (by_key["gemm", 1].grade, by_key["gemm", 1].causes) == ("healthy", ())
    assert by_key["memory", 0].grade == "not-measured"
    assert "a_library_that_is_not_there" in by_key["memory", 0].message
    (file,) = state.rglob("*.bench.json")
    assert msgspec.json.decode(file.read_bytes(), type=BenchmarkReport) == report
    assert "GPU-0000" not in file.read_text()


def test_human_output_fits_80_columns(measured: tuple[BenchmarkReport, Path]) -> None:
    text = "\n".join(line.plain for part in render_benchmark(measured[0]) for line in lines(part, 80))
    assert max(map(len, text.splitlines())) <= 80
    for expected in ("long matrix product", "500 TFLOP/s", "612 to 800", "failing", "power-cap 100%", "1290",
                 "74% of the typical speed; possible causes:", "2 healthy, 1 failing, 3 not-measured"):  # fmt: skip
        assert expected in text


def test_without_a_gpu_is_an_error(tmp_path: Path) -> None:
    done = envdoctor("bench", "--python", sys.executable, home=tmp_path)
    assert done.returncode == 1
    assert "there is no GPU to measure" in done.stderr
    assert "no NVIDIA driver" in done.stderr


def test_bundled_scripts_without_torch_measure_nothing(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    environment = fake_nvml(machine_ini("h200"))
    done = envdoctor("bench", "--python", sys.executable, "--format", "json", home=tmp_path,
                     LD_LIBRARY_PATH=environment["LD_LIBRARY_PATH"],
                     FAKE_NVML_CONFIG=environment["FAKE_NVML_CONFIG"])  # fmt: skip
    data = envelope(done)["data"]
    assert done.returncode == 1
    assert {result["measure"] for result in data["results"]} == {
        "gemm_burst",
        "gemm",
        "memory",
        "h2d",
        "d2h",
    }  # one GPU
    assert {result["grade"] for result in data["results"]} == {"not-measured"}
    assert all("torch is not installed" in result["message"] for result in data["results"])


# --- the measurements of the scripts on CPU tensors

CORE = """
import json, sys; sys.path.insert(0, {probes!r})
import torch
from _result import Result
import bench_allreduce, bench_gemm, bench_host, bench_memory, bench_peer
result, cpu = Result(), torch.device("cpu")
short = {{"warm": 0.05, "seconds": 0.2}}
bench_gemm.multiply(result, 0, cpu, torch.float32, 256, **short)
bench_memory.copy(result, 0, cpu, 8 << 20, **short)
bench_host.copy(result, 0, cpu, torch.full((4 << 20,), 7, dtype=torch.uint8), **short)
bench_peer.copy(result, 0, cpu, cpu, 4 << 20, **short)
bench_allreduce.measure_ranks(result, "gloo", 2, {{"allreduce_64mb": 1 << 20, "allreduce_1gb": 2 << 20}})
open({report!r}, "w").write(json.dumps([result.numbers, result.faults]))
"""


@pytest.mark.stack
def test_scripts_measure_and_report_begin_and_end(stack_python: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code = CORE.format(probes=str(PROBES_FOLDER), report=str(report))
    run_in_stack(stack_python, code, tmp_path)
    numbers, faults = json.loads(report.read_text())
    assert faults == []
    assert numbers["gemm_burst_0"] > 0
    for key in ("gemm_0", "memory_0", "h2d_0", "d2h_0", "peer_0", "allreduce_64mb", "allreduce_1gb"):
        assert numbers[key] > 0
        assert numbers[f"{key}_ended"] - numbers[f"{key}_began"] > 0.05
        assert numbers[f"{key}_spread"] >= 0
    assert numbers["memory_0"] < 1000  # GB/s, more than the memory bandwidth of any CPU
    assert (numbers["gpus"], numbers["wrong_elements"]) == (2, 0)


AT_HALF_A_SECOND = """
import json, sys; sys.path.insert(0, {probes!r})
import torch
from torch import distributed
import _bench, _bench_rank, bench_gemm, bench_host, bench_memory, bench_peer
from _result import Result
_bench.time_repeats = _bench_rank.time_repeats = lambda work, repeats, *devices: 0.5 * repeats
for name in ("init_process_group", "all_reduce", "broadcast", "barrier", "destroy_process_group"):
    setattr(distributed, name, lambda *arguments, **more: None)
result, cpu, short = Result(), torch.device("cpu"), {{"warm": 0.0, "seconds": 0.0}}
bench_gemm.multiply(result, 0, cpu, torch.float32, 10, **short)
bench_memory.copy(result, 0, cpu, 1000, **short)
bench_host.copy(result, 0, cpu, torch.zeros(1000, dtype=torch.uint8), **short)
bench_peer.copy(result, 0, cpu, cpu, 1000, **short)
ranks = _bench_rank.main(0, 4, "gloo", "/unused", {{"allreduce": 1000}})
sys.path.insert(0, {probes!r} + "/fleet")
import collective, types
for name in ("all_gather_into_tensor", "send", "recv"):
    setattr(distributed, name, lambda *arguments, **more: None)
distributed.get_world_size = lambda: 4
collective.time_collective = lambda *arguments: 0.5
clock = iter(range(1000))
collective.time = types.SimpleNamespace(perf_counter=lambda: next(clock) / 2)
status = types.SimpleNamespace(rank=0, enter=lambda phase: None)
speeds, wrong = collective.measure(status, cpu, {{"1 kB": 1000}})
ring = collective.measure_ring(status, cpu)
numbers = result.numbers | ranks["numbers"] | speeds | {{"ring": ring}}
open({report!r}, "w").write(json.dumps(numbers))
"""


@pytest.mark.stack
def test_speeds_of_work_that_takes_half_a_second(stack_python: Path, tmp_path: Path) -> None:
    """TFLOP/s of 2 n cubed operations; GB/s, of which a copy within a GPU reads and writes each byte."""
    report = tmp_path / "report.json"
    run_in_stack(stack_python, AT_HALF_A_SECOND.format(probes=str(PROBES_FOLDER), report=str(report)), tmp_path)
    numbers = json.loads(report.read_text())
    assert numbers["gemm_0"] == pytest.approx(2 * 10**3 / 1e12 / 0.5)
    assert numbers["memory_0"] == pytest.approx(2 * 1000 / 1e9 / 0.5)
    for key in ("h2d_0", "d2h_0", "peer_0"):
        assert numbers[key] == pytest.approx(1000 / 1e9 / 0.5)
    for key in ("allreduce", "all_reduce 1 kB"):
        assert numbers[key] == pytest.approx(2 * 3 / 4 * 1000 / 1e9 / 0.5)  # 2 (n - 1) / n, as nccl-tests
    # Each of 4 ranks gathers 62 numbers of 4 bytes, of which it receives three quarters.
    assert numbers["all_gather 1 kB"] == pytest.approx(3 / 4 * 4 * 62 * 4 / 1e9 / 0.5)
    assert numbers["ring"] == pytest.approx(8 * 2**20 / 1e9 / 0.5)


def test_a_narrow_pcie_link_has_its_share_of_the_speed() -> None:
    half, full = pcie_speed(5, 8), pcie_speed(5, 16)
    assert half is not None
    assert full is not None
    assert full.typical is not None
    assert (half.typical, half.peak) == (full.typical / 2, full.peak / 2)
    assert pcie_speed(5, 0) is None
    assert pcie_speed(9, 16) is None


def test_every_benchmark_has_measures() -> None:
    names = {script.name for script in bundled_benchmarks()}
    assert names == set(bench.MEASURES)
    assert {script.name for script in bundled_benchmarks() if script.gpus == 2} == {"bench_peer", "bench_allreduce"}
