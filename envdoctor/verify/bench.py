"""The GPU benchmark: run the benchmark scripts and grade each measurement against healthy GPUs of the same model.

Each script is a process of the stack's interpreter, like a probe. They run one after another while NVML is sampled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from envdoctor.core.errors import Refused
from envdoctor.core.records import Gpu, ProbeResult
from envdoctor.environment.managed import read_install_record
from envdoctor.knowledge.gpu_speeds import Measure
from envdoctor.machine.driver import read_driver
from envdoctor.machine.gpu import NvmlReading, read_nvml
from envdoctor.machine.gpu_sampler import GpuSample, GpuSampler
from envdoctor.verify.bench_causes import is_only_power_capped, likely_causes
from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult, expected_speed, grade, summarize_load
from envdoctor.verify.probe_process import run_probe
from envdoctor.verify.probe_scripts import bundled_benchmarks
from envdoctor.verify.runner import require_python
from envdoctor.verify.stored_results import BENCH_SCHEMA, bench_path, write_record

# Script -> its measurements. A measurement of one GPU has the GPU's number in its key, such as `gemm_0`.
MEASURES: dict[str, tuple[Measure, ...]] = {
    "bench_gemm": ("gemm_burst", "gemm"),
    "bench_memory": ("memory",),
    "bench_host": ("h2d", "d2h"),
    "bench_peer": ("peer",),
    "bench_allreduce": ("allreduce_64mb", "allreduce_1gb"),
}
ALL_GPU_MEASURES = ("allreduce_64mb", "allreduce_1gb")  # one value for all GPUs together


def run_bench(
    interpreter: Path,
    *,
    on_start: Callable[[str], None] = lambda _: None,
    on_result: Callable[[ProbeResult], None] = lambda _: None,
) -> BenchmarkReport:
    """Measure and grade the GPUs, and store the report next to the verification of the interpreter."""
    require_python(interpreter)
    nvml = read_nvml()
    gpus = require_gpus(nvml)
    record = read_install_record(interpreter.parent.parent)
    started = time.monotonic()
    runs, samples = run_benchmarks(interpreter, len(gpus), on_start, on_result)
    report = BenchmarkReport(
        schema=BENCH_SCHEMA,
        python=str(interpreter),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        driver=read_driver(nvml).version.value or "",
        gpus=tuple(gpu.name.value or "unreadable" for gpu in gpus),
        results=tuple(result for run in runs for result in results_of(run, gpus, samples)),
        runs=tuple(msgspec.structs.replace(run, lists={}) for run in runs),  # the lists contain GPU UUIDs
        seconds=round(time.monotonic() - started, 1),
        lock=record.lock if record else "",
    )
    write_record(bench_path(interpreter), report)
    return report


def require_gpus(nvml: NvmlReading) -> tuple[Gpu, ...]:
    """The GPUs, or Refused with the reason from NVML."""
    if gpus := nvml.gpus.value:
        return gpus
    reason = f"{nvml.gpus.source}: {nvml.gpus.note}" if nvml.gpus.note else nvml.gpus.source
    raise Refused(
        f"there is no GPU to measure ({reason})",
        expected="an NVIDIA GPU with a working driver",
        hint="envdoctor check; without a GPU: envdoctor verify",
    )


def run_benchmarks(
    interpreter: Path,
    gpu_count: int,
    on_start: Callable[[str], None],
    on_result: Callable[[ProbeResult], None],
) -> tuple[list[ProbeResult], list[GpuSample]]:
    """Run every benchmark that this number of GPUs allows, one at a time; returns results and NVML samples."""
    results = []
    with GpuSampler() as sampler:
        for script in bundled_benchmarks():
            if gpu_count < script.gpus:
                continue
            on_start(script.name)
            result = run_probe(interpreter, script, 1.0, threading.Event())
            results.append(result)
            on_result(result)
    return results, list(sampler.samples)


def results_of(run: ProbeResult, gpus: Sequence[Gpu], samples: Sequence[GpuSample]) -> list[BenchmarkResult]:
    """The graded measurements of one script. A measurement without a value has the script's message."""
    results: list[BenchmarkResult] = []
    for measure in MEASURES.get(run.probe, ()):
        if measure in ALL_GPU_MEASURES:
            during = samples_during(run.numbers, measure, [gpu.index for gpu in gpus], samples)
            results.append(_grade_measurement(run, measure, run.numbers.get(measure), gpus[0], during, all_gpus=True))
            continue
        for index, gpu in number_gpus(run.lists.get("gpus", ()), gpus).items():
            key = f"{measure}_{index}"
            during = samples_during(run.numbers, key, [gpu.index], samples)
            results.append(_grade_measurement(run, measure, run.numbers.get(key), gpu, during))
    fast = {result.gpu for result in results if result.measure == "gemm_burst" and result.grade == "healthy"}
    return [_explained_by_power_cap(result) if result.gpu in fast else result for result in results]


def _explained_by_power_cap(result: BenchmarkResult) -> BenchmarkResult:
    """Of a GPU that is fast in bursts, lower clocks at its power limit are an explanation and not a fault."""
    if result.measure == "gemm" and result.grade in ("slow", "failing") and is_only_power_capped(result.load):
        return msgspec.structs.replace(result, grade="healthy")
    return result


def number_gpus(uuids: Sequence[str], gpus: Sequence[Gpu]) -> dict[int, Gpu]:
    """Map torch's GPU numbers to GPUs by UUID, since CUDA_VISIBLE_DEVICES and CUDA's order change the numbers.

    torch prints `1b2c...`, NVML `GPU-1b2c...`. Without UUIDs (torch before 2.4), the order of NVML is assumed.
    """
    if not any(uuids):
        return dict(enumerate(gpus[: len(uuids)] if uuids else gpus))
    by_uuid = {(gpu.uuid.value or "").removeprefix("GPU-"): gpu for gpu in gpus}
    numbered = {index: by_uuid.get(uuid.removeprefix("GPU-")) for index, uuid in enumerate(uuids)}
    return {index: gpu for index, gpu in numbered.items() if gpu is not None}


def _grade_measurement(
    run: ProbeResult,
    measure: Measure,
    measured: float | None,
    gpu: Gpu,
    samples: Sequence[GpuSample],
    *,
    all_gpus: bool = False,
) -> BenchmarkResult:
    value = measured if run.outcome == "passed" else None
    healthy = expected_speed(measure, gpu)
    grade_name = grade(value, healthy)
    load = summarize_load(samples)
    return BenchmarkResult(
        measure=measure,
        gpu=None if all_gpus else gpu.index,
        gpu_name=gpu.name.value or "unreadable",
        value=value,
        unit="TFLOP/s" if measure in ("gemm_burst", "gemm") else "GB/s",
        grade=grade_name,
        message="" if value is not None else f"{run.outcome}: {run.message}",
        healthy=healthy,
        healthy_from=round(healthy.healthy_from, 1) if healthy else None,
        failing_below=round(healthy.failing_below, 1) if healthy else None,
        causes=likely_causes(measure, gpu, load, run.versions) if grade_name in ("slow", "failing") else (),
        load=load,
    )


def samples_during(
    numbers: Mapping[str, float], key: str, gpus: Sequence[int], samples: Sequence[GpuSample]
) -> list[GpuSample]:
    """The samples of these GPUs while a measurement ran. Script and sampler use the same system clock."""
    began, ended = numbers.get(f"{key}_began"), numbers.get(f"{key}_ended")
    if began is None or ended is None:
        return []
    return [sample for sample in samples if sample.gpu in gpus and began <= sample.when <= ended]
