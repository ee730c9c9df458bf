"""Current utilisation, memory, power and temperature of each GPU, for live displays. Errors give no values."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.machine.gpu import Nvml, read_value
from envdoctor.machine.timeout import call_with_timeout

TIMEOUT_SECONDS = 2.0  # for all GPUs; reading one takes 1 to 5 ms on an H200
FIELDS = ("memory_used", "memory_total", "power", "power_limit", "temperature")


class GpuUsage(Record, frozen=True, kw_only=True):
    """One GPU. Units: bytes, watts, degrees Celsius. None: not reported."""

    index: int
    name: str
    busy: float | None = None  # share of the time in which a kernel ran, 0 to 1
    memory_used: int | None = None
    memory_total: int | None = None
    power: float | None = None
    power_limit: float | None = None
    temperature: int | None = None


def read_gpu_usage() -> tuple[GpuUsage, ...]:
    """Every GPU of this machine; empty if NVML fails, which `check` reports. After a TimeoutError, do not retry."""
    try:
        return call_with_timeout(TIMEOUT_SECONDS, _read_all)
    except TimeoutError:
        raise
    except Exception:  # no driver, a lost GPU: the display continues without GPUs
        return ()


def _read_all() -> tuple[GpuUsage, ...]:
    import pynvml

    pynvml.nvmlInit()  # may be called repeatedly
    nvml = Nvml(pynvml)
    return tuple(_read_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def _read_gpu(nvml: Nvml, index: int) -> GpuUsage:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except (nvml.NVMLError, ValueError):
        busy = None
    return GpuUsage(
        index=index,
        name=read_value(nvml, handle, "name") or "GPU",
        busy=busy,
        **{field: read_value(nvml, handle, field) for field in FIELDS},
    )
