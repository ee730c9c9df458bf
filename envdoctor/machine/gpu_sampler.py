"""What GPUs do while something runs on them: clocks, temperature, power, throttle reasons, a few times a second."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

from envdoctor.core.records import Clocks, Gpu, PcieLink, Record
from envdoctor.machine.gpu import READERS, Nvml, read_nvml

EVERY_SECONDS = 0.1  # a reading of one GPU takes 1 to 5 ms on an H200
LONGEST_WAIT = 5.0  # for a reading that hangs when the sampling is over


def smallest_free_gpu_memory() -> int:
    """Bytes that are free on the GPU with the least; 0 where a GPU does not tell, or lends slices of it (MIG)."""
    gpus = read_nvml().gpus.value or ()
    return min((_free(gpu) for gpu in gpus), default=0)


def _free(gpu: Gpu) -> int:
    total, used = gpu.memory_total.value, gpu.memory_used.value
    return 0 if total is None or used is None or gpu.mig.value else max(0, total - used)


class GpuSample(Record, frozen=True):
    """One GPU at one moment, `when` in seconds since 1970; None where it does not tell."""

    when: float
    gpu: int
    clocks: Clocks | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    pcie: PcieLink | None = None


class GpuSampler:
    """Samples all GPUs from a thread of its own while the `with` block runs; none where NVML does not answer."""

    def __init__(self) -> None:
        self.samples: list[GpuSample] = []
        self._stop = threading.Event()
        # A daemon: a call that is stuck in the driver must not keep the tool from ending.
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LONGEST_WAIT)

    def _sample(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            nvml = Nvml(pynvml)
            handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        except Exception:  # whatever is wrong with NVML, `check` tells it: here it means that nothing is sampled
            return
        while not self._stop.wait(EVERY_SECONDS):
            self.samples.extend(read_sample(nvml, handle, gpu) for gpu, handle in enumerate(handles))


def read_sample(nvml: Nvml, handle: Any, gpu: int) -> GpuSample:
    """One GPU as it is now."""
    return GpuSample(
        when=time.time(),
        gpu=gpu,
        clocks=_answer(nvml, handle, "clocks"),
        temperature=_answer(nvml, handle, "temperature"),
        power=_answer(nvml, handle, "power"),
        power_limit=_answer(nvml, handle, "power_limit"),
        throttle_reasons=_answer(nvml, handle, "throttle_reasons") or (),
        pcie=_answer(nvml, handle, "pcie"),
    )


def _answer(nvml: Nvml, handle: Any, field: str) -> Any:
    """The first reader's answer that comes, as facts.gpu orders them."""
    for reader in READERS[field]:
        try:
            return reader.read(nvml, handle)
        except (nvml.NVMLError, ValueError):
            continue
    return None
