"""Measurement of the benchmarks: warm-up, then batches of equal work; the result is the median of the batches."""

import time
from collections.abc import Callable
from statistics import median

from _result import Result

WARM_SECONDS = 1.0  # clocks, power and temperature reach their values under load
MEASURED_SECONDS = 2.0
BURST_SECONDS = 0.04  # an H100 reaches its power limit, which reduces the clocks, after 0.05 s
BURST_PAUSE_SECONDS = 1.0  # before each burst
BURSTS = 3
BATCH_SECONDS = 0.1  # much longer than the synchronisation with the GPU


def find_gpus(result: Result) -> list:
    """All CUDA devices. Their UUIDs are reported in order, since NVML may number the GPUs differently."""
    import torch

    count = torch.cuda.device_count()
    properties = [torch.cuda.get_device_properties(index) for index in range(count)]
    # available from torch 2.4; without it, the order of NVML is assumed
    result.lists["gpus"] = [str(getattr(device, "uuid", "")) for device in properties]
    return [torch.device("cuda", index) for index in range(count)]


def wait_for(*devices) -> None:
    """Wait until all work on these devices is done."""
    import torch

    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def measure(
    result: Result,
    name: str,
    gpu: int,
    work: Callable[[], object],
    amount: float,
    *devices,
    warm: float = WARM_SECONDS,
    seconds: float = MEASURED_SECONDS,
) -> float:
    """Report the rate of `work` in `amount` per second: median, spread, begin and end."""
    wait_for(*devices)
    work()  # the first call loads kernels
    repeats, elapsed, began = 1, 0.0, time.perf_counter()
    while time.perf_counter() - began < warm or not elapsed:
        elapsed = time_repeats(work, repeats, *devices)
        repeats = max(1, round(repeats * BATCH_SECONDS / elapsed))
    rates, began_at, began = [], time.time(), time.perf_counter()
    while time.perf_counter() - began < seconds or len(rates) < 3:
        rates.append(amount * repeats / time_repeats(work, repeats, *devices))
    rate = median(rates)
    report_rate(result, f"{name}_{gpu}", rate, rates, began_at)
    return rate


def measure_burst(result: Result, name: str, gpu: int, work: Callable[[], object], amount: float, *devices) -> float:
    """Report the median rate of bursts of `work` that end before the power limit reduces the clocks."""
    wait_for(*devices)
    work()  # the first call loads kernels
    repeats = max(1, round(BURST_SECONDS / time_repeats(work, 1, *devices)))
    rates, began_at = [], time.time()
    for _ in range(BURSTS):
        time.sleep(BURST_PAUSE_SECONDS)
        rates.append(amount * repeats / time_repeats(work, repeats, *devices))
    rate = median(rates)
    report_rate(result, f"{name}_{gpu}", rate, rates, began_at)
    return rate


def time_repeats(work: Callable[[], object], repeats: int, *devices) -> float:
    """Seconds for `repeats` calls of `work`, including synchronisation."""
    wait_for(*devices)
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    wait_for(*devices)
    return time.perf_counter() - began


def report_rate(result: Result, name: str, rate: float, rates: list, began_at: float) -> None:
    """Report a rate, the spread of its batches as a share of it, and begin and end in seconds since 1970."""
    result.note(name, rate)
    result.note(f"{name}_spread", (max(rates) - min(rates)) / rate)
    result.note(f"{name}_began", began_at)
    result.note(f"{name}_ended", time.time())
