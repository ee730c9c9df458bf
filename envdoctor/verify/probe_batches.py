"""Which probes run side by side: as many as cores, host memory and GPU memory carry, and some alone."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from envdoctor.core.records import ProbeResult, Record
from envdoctor.machine.memory import read_memory
from envdoctor.verify.probe_process import run_probe
from envdoctor.verify.probe_scripts import Probe

# Two CPU probes at a time at least: most of a probe is one thread that imports libraries. More would want more
# memory than small machines have (half a gigabyte each).
CPU_WORKERS = 2
# A probe is one thread most of the time, but nvcc, Triton's and inductor's compilers start processes beside it: on
# 16 cores eight at a time leave a core for each of those.
CORES_EACH = 2
# Host memory of a probe that imports torch, has a CUDA context and compiles; its bound (MEMORY_GB) is far above it.
HOST_MEMORY_EACH = 3 << 30
# GPU memory of a probe: a CUDA context with cuBLAS's workspace takes about 1 GiB on an H200, the tensors less.
GPU_MEMORY_EACH = 4 << 30


class Capacity(Record, frozen=True):
    """What there is to run probes on. Memory in bytes, free; of the GPU with the least, 0 where there is none."""

    cores: int
    memory: int
    gpu_memory: int = 0


class Batch(Record, frozen=True):
    """Probes to run side by side, in the order in which they start, and how many of them at a time."""

    probes: tuple[Probe, ...]
    workers: int


def read_capacity(gpu_memory: int = 0) -> Capacity:
    """What this process may use."""
    memory = read_memory()
    sizes = [fact.value for fact in (memory.available, memory.cgroup_limit) if fact.value is not None]
    return Capacity(cores=len(os.sched_getaffinity(0)), memory=min(sizes, default=0), gpu_memory=gpu_memory)


def plan_batches(probes: Sequence[Probe], capacity: Capacity) -> tuple[Batch, ...]:
    """The probes in batches, the longest first in each, and last those that want a machine of their own.

    Where there is room for more than two GPU probes, those of the CPU run among them; else they run before them.
    """
    host = min(capacity.cores // CORES_EACH, capacity.memory // HOST_MEMORY_EACH)
    cpu_workers = max(CPU_WORKERS, host)
    gpu_workers = max(1, min(host, capacity.gpu_memory // GPU_MEMORY_EACH))
    shared = [probe for probe in probes if not probe.alone]
    if gpu_workers > CPU_WORKERS:
        parts = [(shared, gpu_workers)]
    else:
        parts = [
            ([probe for probe in shared if not probe.needs_gpu], cpu_workers),
            ([probe for probe in shared if probe.needs_gpu], gpu_workers),
        ]
    parts.append(([probe for probe in probes if probe.alone], 1))
    return tuple(Batch(longest_first(part), min(workers, len(part))) for part, workers in parts if part)


def longest_first(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """A long one that starts last would run on when all others have ended."""
    return tuple(sorted(probes, key=lambda probe: (-probe.seconds, -probe.deadline)))


def run_batch(
    python: Path,
    batch: Batch,
    *,
    scale: float,
    on_start: Callable[[str], None],
    on_result: Callable[[ProbeResult], None],
) -> dict[str, ProbeResult]:
    """Run probes side by side; whatever is raised here, Ctrl-C too, stops them all."""
    events: queue.SimpleQueue[str | ProbeResult | BaseException] = queue.SimpleQueue()
    cancelled = threading.Event()

    def work(probe: Probe) -> None:
        events.put(probe.name)
        try:
            events.put(run_probe(python, probe, scale, cancelled, workers=max(CPU_WORKERS, batch.workers)))
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
