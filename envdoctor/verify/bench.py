"""`envdoctor verify --bench`: how fast this machine's GPUs are, graded against healthy ones of their kind.

Each benchmark is a process of its own inside the stack's interpreter, as probes are, one after another; NVML is read
meanwhile from here.
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
from envdoctor.verify import runner as verify
from envdoctor.verify import status as verify_status
from envdoctor.verify.bench_causes import likely_causes
from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult, expected_speed, grade, summarize_load
from envdoctor.verify.probe_process import run_probe
from envdoctor.verify.probe_scripts import Probe, bundled_benchmarks
from envdoctor.verify.stored_results import BENCH_SCHEMA, bench_path, write_record

# What each script measures. Those of one GPU come with its number, `gemm_0`; the others are of all GPUs together.
MEASURES: dict[str, tuple[Measure, ...]] = {
    "bench_gemm": ("gemm",),
    "bench_memory": ("memory",),
    "bench_host": ("h2d", "d2h"),
    "bench_peer": ("peer",),
    "bench_allreduce": ("allreduce_64mb", "allreduce_1gb"),
}
TOGETHER = ("allreduce_64mb", "allreduce_1gb")


def bench(
    venv: str,
    python: str,
    *,
    on_start: Callable[[str], None] = lambda _: None,
    on_result: Callable[[ProbeResult], None] = lambda _: None,
) -> BenchmarkReport:
    """Measure the GPUs, grade the results, and store them next to the verification."""
    interpreter = verify_status.resolve_interpreter(venv, python)
    verify.require_python(interpreter)
    nvml = read_nvml()
    gpus = require_gpus(nvml)
    installed = read_install_record(interpreter.parent.parent)
    began = time.monotonic()
    runs, samples = run_benchmarks(interpreter, len(gpus), on_start, on_result)
    found = BenchmarkReport(
        schema=BENCH_SCHEMA,
        python=str(interpreter),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        driver=read_driver(nvml).version.value or "",
        gpus=tuple(gpu.name.value or "unreadable" for gpu in gpus),
        results=tuple(result for run in runs for result in results_of(run, gpus, samples)),
        # a GPU's UUID says whose machine it is, and has done its work
        runs=tuple(msgspec.structs.replace(run, lists={}) for run in runs),
        seconds=round(time.monotonic() - began, 1),
        lock=installed.lock if installed else "",
    )
    write_record(bench_path(interpreter), found)
    return found


def require_gpus(nvml: NvmlReading) -> tuple[Gpu, ...]:
    """The GPUs, or Refused with what NVML says instead."""
    if gpus := nvml.gpus.value:
        return gpus
    why = f"{nvml.gpus.source}: {nvml.gpus.note}" if nvml.gpus.note else nvml.gpus.source
    raise Refused(
        f"there is no GPU to measure ({why})",
        expected="an NVIDIA GPU whose driver answers",
        hint="envdoctor check; without a GPU: envdoctor verify",
    )


def run_benchmarks(
    interpreter: Path,
    gpus: int,
    on_start: Callable[[str], None],
    on_result: Callable[[ProbeResult], None],
    scripts: Sequence[Probe] | None = None,
) -> tuple[list[ProbeResult], list[GpuSample]]:
    """Every benchmark that these many GPUs allow, alone, and what NVML told of the GPUs meanwhile."""
    runs = []
    with GpuSampler() as sampling:
        for script in bundled_benchmarks() if scripts is None else scripts:
            if gpus < script.gpus:
                continue
            on_start(script.name)
            run = run_probe(interpreter, script, 1.0, threading.Event())
            runs.append(run)
            on_result(run)
    return runs, list(sampling.samples)


def results_of(run: ProbeResult, gpus: Sequence[Gpu], samples: Sequence[GpuSample]) -> list[BenchmarkResult]:
    """What one script measured, graded; where it measured nothing, that, with its message."""
    measures = MEASURES.get(run.probe, ())
    numbering = number_gpus(run.lists.get("gpus", ()), gpus)
    results = []
    for measure in measures:
        if measure in TOGETHER:
            seen = window(run.numbers, measure, [gpu.index for gpu in gpus], samples)
            results.append(_graded(run, measure, run.numbers.get(measure), gpus[0], seen, together=True))
            continue
        for index, gpu in numbering.items():
            key = f"{measure}_{index}"
            seen = window(run.numbers, key, [gpu.index], samples)
            results.append(_graded(run, measure, run.numbers.get(key), gpu, seen))
    return results


def number_gpus(uuids: Sequence[str], gpus: Sequence[Gpu]) -> dict[int, Gpu]:
    """The GPU of each of torch's numbers: by UUID, since CUDA_VISIBLE_DEVICES and CUDA's order change the numbers.

    torch writes `1b2c...`, NVML `GPU-1b2c...`; without UUIDs (torch before 2.4) the order is taken to be NVML's.
    """
    if not any(uuids):
        return dict(enumerate(gpus[: len(uuids)] if uuids else gpus))
    known = {(gpu.uuid.value or "").removeprefix("GPU-"): gpu for gpu in gpus}
    found = {index: known.get(uuid.removeprefix("GPU-")) for index, uuid in enumerate(uuids)}
    return {index: gpu for index, gpu in found.items() if gpu is not None}


def _graded(
    run: ProbeResult,
    measure: Measure,
    measured: float | None,
    gpu: Gpu,
    samples: Sequence[GpuSample],
    *,
    together: bool = False,
) -> BenchmarkResult:
    value = measured if run.outcome == "passed" else None
    healthy = expected_speed(measure, gpu)
    verdict = grade(value, healthy)
    load = summarize_load(samples)
    low = verdict in ("slow", "failing")
    return BenchmarkResult(
        measure=measure,
        gpu=None if together else gpu.index,
        gpu_name=gpu.name.value or "unreadable",
        value=value,
        unit="TFLOP/s" if measure == "gemm" else "GB/s",
        grade=verdict,
        message="" if value is not None else f"{run.outcome}: {run.message}",
        healthy=healthy,
        healthy_from=round(healthy.healthy_from, 1) if healthy else None,
        failing_below=round(healthy.failing_below, 1) if healthy else None,
        causes=likely_causes(measure, gpu, load, run.versions) if low else (),
        load=load,
    )


def window(
    numbers: Mapping[str, float], key: str, gpus: Sequence[int], samples: Sequence[GpuSample]
) -> list[GpuSample]:
    """The samples of these GPUs from when a measurement ran; both clocks are the machine's."""
    began, ended = numbers.get(f"{key}_began"), numbers.get(f"{key}_ended")
    if began is None or ended is None:
        return []
    return [sample for sample in samples if sample.gpu in gpus and began <= sample.when <= ended]
