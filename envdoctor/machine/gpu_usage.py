"""What each GPU does at this moment, for a display: how busy, how full, how hot. No GPU, no numbers, no trouble."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envdoctor.core.records import Record
from envdoctor.machine.gpu import READERS, Nvml
from envdoctor.machine.timeout import call_with_timeout

DEADLINE = 2.0  # seconds for all GPUs; a reading of one takes 1 to 5 ms on an H200


class GpuUsage(Record, frozen=True, kw_only=True):
    """One GPU: share of the time that it computed (0 to 1), bytes, watts, degrees Celsius; None: not told."""

    index: int
    name: str
    busy: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    power: float | None = None
    power_limit: float | None = None
    temperature: int | None = None


def read_gpu_usage() -> tuple[GpuUsage, ...]:
    """Every GPU of this machine; none where NVML has no answer: `check` says why. TimeoutError: do not ask again."""
    try:
        return call_with_timeout(DEADLINE, _read_all)
    except TimeoutError:
        raise
    except Exception:  # no driver, a lost GPU: a display goes on without
        return ()


def _read_all() -> tuple[GpuUsage, ...]:
    import pynvml

    pynvml.nvmlInit()  # counted: as often as wanted
    nvml = Nvml(pynvml)
    return tuple(_read(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def _read(nvml: Nvml, index: int) -> GpuUsage:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def told(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (nvml.NVMLError, ValueError):
            return None

    def field(name: str) -> Any:
        """The first reader's answer that comes, as facts.gpu orders them."""
        answers = (told(lambda reader=reader: reader.read(nvml, handle)) for reader in READERS[name])  # type: ignore[misc]
        return next((answer for answer in answers if answer is not None), None)

    percent = told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    kept = ("memory_used", "memory_total", "power", "power_limit", "temperature")
    return GpuUsage(
        index=index,
        name=field("name") or "GPU",
        busy=None if percent is None else percent / 100,
        **{name: field(name) for name in kept},
    )
