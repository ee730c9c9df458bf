"""GPUs without memory of their own: NVML answers "Not Supported" for the memory of a DGX Spark or a Jetson."""

from __future__ import annotations

import msgspec

from envdoctor.core.records import Fact, Gpu, Memory, known
from envdoctor.knowledge.gpus import gpu_model

NOTE = "the system's memory, which the GPU shares"


def with_shared_memory(gpus: Fact[tuple[Gpu, ...]], memory: Memory) -> Fact[tuple[Gpu, ...]]:
    """The GPUs; those that use the system's memory have its size, and its used part as their own."""
    if not any(_shares_memory(gpu) for gpu in gpus.value or ()):
        return gpus
    return msgspec.structs.replace(gpus, value=tuple(_with_memory(gpu, memory) for gpu in gpus.value or ()))


def _shares_memory(gpu: Gpu) -> bool:
    model = gpu_model(gpu.name.value or "")
    return gpu.memory_total.state == "absent" and model is not None and model.shares_memory


def _with_memory(gpu: Gpu, memory: Memory) -> Gpu:
    total, available = memory.total.value, memory.available.value
    if not _shares_memory(gpu) or total is None:
        return gpu
    used = gpu.memory_used if available is None else known(total - available, memory.available.source, NOTE)
    return msgspec.structs.replace(gpu, memory_total=known(total, memory.total.source, NOTE), memory_used=used)
