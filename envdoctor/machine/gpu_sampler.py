"""Samples of clocks, temperature, power and throttle reasons while a process uses the GPUs."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

from envdoctor.core.record import Record
from envdoctor.core.records import Clocks, Gpu, PcieLink
from envdoctor.machine.gpu import Nvml, read_nvml, read_value

INTERVAL_SECONDS = 0.1  # reading one GPU takes 1 to 5 ms on an H200
JOIN_SECONDS = 5.0  # maximum wait for a blocked reading at the end


def smallest_free_gpu_memory() -> int:
    """The smallest number of free bytes of all GPUs; 0 if a GPU does not report it or is in MIG mode."""
    gpus = read_nvml().gpus.value or ()
    return min((_free_memory(gpu) for gpu in gpus), default=0)


def _free_memory(gpu: Gpu) -> int:
    total, used = gpu.memory_total.value, gpu.memory_used.value
    return 0 if total is None or used is None or gpu.mig.value else max(0, total - used)


class GpuSample(Record, frozen=True):
    """One sample of one GPU. `when`: seconds since 1970; None: not reported."""

    when: float
    gpu: int
    clocks: Clocks | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    pcie: PcieLink | None = None


class GpuSampler:
    """Samples all GPUs in a thread during the `with` block; no samples if NVML fails."""

    def __init__(self) -> None:
        self.samples: list[GpuSample] = []
        self._stop = threading.Event()
        # A daemon thread: a call that blocks in the driver must not prevent the tool from exiting.
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(JOIN_SECONDS)

    def _sample(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            nvml = Nvml(pynvml)
            handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        except Exception:  # `check` reports errors of NVML; here there are just no samples
            return
        while not self._stop.wait(INTERVAL_SECONDS):
            self.samples.extend(read_sample(nvml, handle, gpu) for gpu, handle in enumerate(handles))


def read_sample(nvml: Nvml, handle: Any, gpu: int) -> GpuSample:
    """Take one sample of a GPU."""
    return GpuSample(
        when=time.time(),
        gpu=gpu,
        clocks=read_value(nvml, handle, "clocks"),
        temperature=read_value(nvml, handle, "temperature"),
        power=read_value(nvml, handle, "power"),
        power_limit=read_value(nvml, handle, "power_limit"),
        throttle_reasons=read_value(nvml, handle, "throttle_reasons") or (),
        pcie=read_value(nvml, handle, "pcie"),
    )
