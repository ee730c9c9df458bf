"""GPUs to choose by name, with memory, bandwidth, number formats and the oldest driver: gpu_catalogue.toml."""

from __future__ import annotations

import re
from functools import cache

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.knowledge.cuda import bundled_driver, first_toolkit
from envdoctor.knowledge.gpus import compute_capability
from envdoctor.knowledge.tables import load_table
from envdoctor.knowledge.versions import MajorMinor, major_minor

MAX_GPUS = 16
COUNT = lazy_pattern(r"(?P<gpu>.+?)x(?P<count>\d{1,2})")
# The formats of the tensor cores that training uses, from this compute capability on.
# docs.nvidia.com/cuda/cuda-c-programming-guide, "Tensor Cores"; docs.nvidia.com/cuda/parallel-thread-execution, mma.
FORMATS = (((7, 0), "fp16"), ((8, 0), "bf16"), ((8, 0), "tf32"), ((8, 9), "fp8"), ((10, 0), "fp4"))
WITHOUT_FP4 = ((11, 0),)  # PTX ISA: mma with e2m1 for sm_100, sm_103, sm_120 and sm_121


class CatalogueGpu(Record, frozen=True, kw_only=True):
    """A GPU model. Memory in MiB, bandwidth in GB/s."""

    id: str
    name: str  # as NVML prints it
    aliases: tuple[str, ...] = ()
    architecture: str  # of the machine: x86_64, aarch64
    memory_mib: int  # 0: it uses the system's memory
    system_memory_mib: int = 0
    bandwidth: float

    @property
    def capability(self) -> str:
        """The compute capability, "9.0"."""
        return compute_capability(self.name) or ""

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of its tensor cores."""
        own: MajorMinor = major_minor(self.capability)
        return tuple(name for first, name in FORMATS if own >= first and (name != "fp4" or own not in WITHOUT_FP4))

    @property
    def oldest_driver(self) -> str:
        """The driver of the first CUDA release that compiles for it; empty for releases before CUDA 11."""
        first = first_toolkit(major_minor(self.capability))
        return bundled_driver(first.cuda) if first else ""


@cache
def catalogue() -> dict[str, CatalogueGpu]:
    """All models by id."""
    return {gpu.id: gpu for gpu in load_table("gpu_catalogue.toml", tuple[CatalogueGpu, ...], "gpu")}


def find_gpus(text: str) -> tuple[CatalogueGpu, int] | None:
    """The model and the number of GPUs of a name such as `h100-80gb`, `l4x2` or `RTX 4090`; None if it is unknown."""
    name = re.sub(r"[\s_]+", "-", text.strip().lower())
    found = COUNT.fullmatch(name)
    candidates = [(name, 1), *([(found["gpu"], int(found["count"]))] if found else [])]
    for candidate, count in candidates:
        for gpu in catalogue().values():
            same = {each.replace("-", "") for each in (gpu.id, *gpu.aliases)}
            if candidate.replace("-", "").removeprefix("nvidia") in same and 1 <= count <= MAX_GPUS:
                return gpu, count
    return None
