"""How the benchmarks measure: warm up, then batches of equal work, of which the median counts."""

import time
from collections.abc import Callable
from statistics import median

from _result import Result

WARM_SECONDS = 1.0  # until clocks, power and temperature are those of work
MEASURED_SECONDS = 2.0
BATCH_SECONDS = 0.1  # long against the microseconds that waiting for the GPU takes


def find_gpus(result: Result) -> list:
    """All CUDA devices; their UUIDs are kept in order, since NVML may count them differently."""
    import torch

    count = torch.cuda.device_count()
    properties = [torch.cuda.get_device_properties(index) for index in range(count)]
    # torch has the UUID from 2.4 on; without it the order is taken to be NVML's
    result.lists["gpus"] = [str(getattr(each, "uuid", "")) for each in properties]
    return [torch.device("cuda", index) for index in range(count)]


def wait_for(*devices) -> None:
    """Until all work on these devices is done."""
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
    """Keep how much of `amount` a second `work` does: the median of batches, their spread, and from when to when."""
    wait_for(*devices)
    work()  # the first call loads kernels
    repeats, spent, began = 1, 0.0, time.perf_counter()
    while time.perf_counter() - began < warm or not spent:
        spent = timed(work, repeats, *devices)
        repeats = max(1, round(repeats * BATCH_SECONDS / spent))
    rates, opened, began = [], time.time(), time.perf_counter()
    while time.perf_counter() - began < seconds or len(rates) < 3:
        rates.append(amount * repeats / timed(work, repeats, *devices))
    rate = median(rates)
    keep(result, f"{name}_{gpu}", rate, rates, opened)
    return rate


def timed(work: Callable[[], object], repeats: int, *devices) -> float:
    """Seconds that `work` takes `repeats` times, the waiting for its end included."""
    wait_for(*devices)
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    wait_for(*devices)
    return time.perf_counter() - began


def keep(result: Result, name: str, rate: float, rates: list, opened: float) -> None:
    """A rate, how far the batches lie apart as a share of it, and the window in seconds since 1970."""
    result.note(name, rate)
    result.note(f"{name}_spread", (max(rates) - min(rates)) / rate)
    result.note(f"{name}_began", opened)
    result.note(f"{name}_ended", time.time())
