"""Which probes run in parallel, limited by CPU cores, host memory and GPU memory; some probes run alone."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from envdoctor.core.record import Record
from envdoctor.core.records import ProbeResult
from envdoctor.machine.memory import read_memory
from envdoctor.verify.probe_process import run_probe
from envdoctor.verify.probe_scripts import Probe

# A CPU probe is mostly one thread that imports libraries. Each takes half a gigabyte, so more than two might not fit
# into the memory of a small machine.
MIN_CPU_WORKERS = 2
# Compilers (nvcc, Triton, inductor) start processes of their own, so each probe gets two cores.
CORES_PER_PROBE = 2
# Host memory of a probe that imports torch, creates a CUDA context and compiles. Its limit (MEMORY_GB) is far higher.
HOST_MEMORY_PER_PROBE = 3 << 30
# A CUDA context with cuBLAS's workspace takes about 1 GiB on an H200; the tensors of a probe take less.
GPU_MEMORY_PER_PROBE = 4 << 30


class Capacity(Record, frozen=True):
    """Cores and free memory in bytes. `gpu_memory`: the smallest of all GPUs, 0 without GPUs."""

    cores: int
    memory: int
    gpu_memory: int = 0


class Batch(Record, frozen=True):
    """Probes in start order, and how many of them run in parallel."""

    probes: tuple[Probe, ...]
    workers: int


def read_capacity(gpu_memory: int = 0) -> Capacity:
    """The resources that are available to this process."""
    memory = read_memory()
    sizes = [fact.value for fact in (memory.available, memory.cgroup_limit) if fact.value is not None]
    return Capacity(cores=len(os.sched_getaffinity(0)), memory=min(sizes, default=0), gpu_memory=gpu_memory)


def plan_batches(probes: Sequence[Probe], capacity: Capacity) -> tuple[Batch, ...]:
    """Group the probes into batches, longest probes first, with probes that need the machine alone at the end.

    If more than two GPU probes fit, CPU probes share their batch. Otherwise the CPU probes run first.
    """
    host_workers = min(capacity.cores // CORES_PER_PROBE, capacity.memory // HOST_MEMORY_PER_PROBE)
    cpu_workers = max(MIN_CPU_WORKERS, host_workers)
    gpu_workers = max(1, min(host_workers, capacity.gpu_memory // GPU_MEMORY_PER_PROBE))
    parallel = [probe for probe in probes if not probe.alone]
    if gpu_workers > MIN_CPU_WORKERS:
        groups = [(parallel, gpu_workers)]
    else:
        groups = [
            ([probe for probe in parallel if not probe.needs_gpu], cpu_workers),
            ([probe for probe in parallel if probe.needs_gpu], gpu_workers),
        ]
    groups.append(([probe for probe in probes if probe.alone], 1))
    return tuple(Batch(longest_first(group), min(workers, len(group))) for group, workers in groups if group)


def longest_first(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """Sort by expected duration, so that no long probe runs alone at the end of its batch."""
    return tuple(sorted(probes, key=lambda probe: (-probe.seconds, -probe.deadline)))


def run_batch(
    python: Path,
    batch: Batch,
    *,
    scale: float,
    on_start: Callable[[str], None],
    on_result: Callable[[ProbeResult], None],
) -> dict[str, ProbeResult]:
    """Run the probes of a batch in parallel. Any exception, including Ctrl-C, stops all of them."""
    events: queue.SimpleQueue[str | ProbeResult | BaseException] = queue.SimpleQueue()
    cancelled = threading.Event()

    def work(probe: Probe) -> None:
        events.put(probe.name)
        try:
            events.put(run_probe(python, probe, scale, cancelled, workers=max(MIN_CPU_WORKERS, batch.workers)))
        except BaseException as error:
            events.put(error)

    results: dict[str, ProbeResult] = {}
    with ThreadPoolExecutor(batch.workers) as pool:
        try:
            for probe in batch.probes:
                pool.submit(work, probe)
            while len(results) < len(batch.probes):
                event = events.get()
                if isinstance(event, BaseException):
                    raise event
                if isinstance(event, ProbeResult):
                    results[event.probe] = event
                    on_result(event)
                else:
                    on_start(event)
        finally:
            cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return results
