"""A machine with GPUs of the catalogue: `--machine h100-80gb`, `--machine l4x2`."""

from __future__ import annotations

from typing import Any

from envdoctor.core.records import (
    CudaToolkit,
    Driver,
    Fact,
    Gpu,
    Limits,
    Machine,
    Memory,
    Storage,
    System,
    absent,
    known,
    unreadable,
)
from envdoctor.knowledge.cuda import cuda_of_driver
from envdoctor.knowledge.gpu_catalogue import CatalogueGpu
from envdoctor.knowledge.versions import major_minor

SOURCE = "GPU catalogue"
# What most rented machines have. A newer branch does not support GPUs before Turing.
ASSUMED_SYSTEM, ASSUMED_GLIBC, ASSUMED_DRIVER = "Ubuntu 22.04 LTS", "2.35", "580.95.05"
# Grace and Blackwell run with the open kernel modules only.
# developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules, 2024-07-17
OPEN_MODULES, OPEN_MODULES_FROM = ("aarch64",), (10, 0)
ASSUMED = "assumed; --fact sets another value"
UNKNOWN: Fact[Any] = unreadable(SOURCE, "not in the catalogue")


def catalogue_machine(gpu: CatalogueGpu, count: int) -> Machine:
    """A machine with `count` of these GPUs, a usual system and driver, and nothing else known."""
    cuda = cuda_of_driver(ASSUMED_DRIVER)
    memory = gpu.system_memory_mib << 20
    return Machine(
        name=gpu.id + (f"x{count}" if count > 1 else ""),
        origin=f"{SOURCE}, system and driver assumed",
        system=_record(
            System,
            architecture=known(gpu.architecture, SOURCE),
            os=known(ASSUMED_SYSTEM, ASSUMED),
            glibc=known(ASSUMED_GLIBC, ASSUMED),
            wsl=absent(ASSUMED),
        ),
        memory=_record(Memory, total=known(memory, SOURCE)) if memory else _record(Memory),
        storage=_record(Storage),
        limits=_record(Limits),
        pythons=UNKNOWN,
        driver=_record(
            Driver,
            version=known(ASSUMED_DRIVER, ASSUMED),
            library=known(ASSUMED_DRIVER, ASSUMED),
            cuda=known(cuda, ASSUMED) if cuda else UNKNOWN,
            module=known("open", SOURCE) if _needs_open_modules(gpu) else UNKNOWN,
        ),
        gpus=known(tuple(_gpu(gpu, index) for index in range(count)), SOURCE),
        cuda=_record(CudaToolkit),
        environment=UNKNOWN,
        interfaces=UNKNOWN,
        slurm=UNKNOWN,
    )


def _needs_open_modules(gpu: CatalogueGpu) -> bool:
    return gpu.architecture in OPEN_MODULES or major_minor(gpu.capability) >= OPEN_MODULES_FROM


def _gpu(gpu: CatalogueGpu, index: int) -> Gpu:
    memory = gpu.memory_mib or gpu.system_memory_mib
    note = "" if gpu.memory_mib else "the system's memory, which the GPU shares"
    found: Gpu = _record(
        Gpu,
        index=index,
        name=known(gpu.name, SOURCE),
        compute_capability=known(gpu.capability, SOURCE),
        memory_total=known(memory << 20, SOURCE, note),
    )
    return found


def _record(record: type[Any], **facts: object) -> Any:
    """A record of facts; those that are not given are unknown."""
    return record(**{name: facts.get(name, UNKNOWN) for name in record.__struct_fields__})
