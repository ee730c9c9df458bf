"""`envdoctor gpus`: list the GPUs that other commands accept by name."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.knowledge.gpu_catalogue import catalogue


class GpuEntry(Record, frozen=True, kw_only=True):
    """One GPU. Memory in MiB, bandwidth in GB/s."""

    id: str
    aliases: tuple[str, ...]
    name: str
    architecture: str
    compute_capability: str
    memory_mib: int
    shares_system_memory: bool
    bandwidth: float
    formats: tuple[str, ...]
    oldest_driver: str  # empty: older than CUDA 11


class GpuList(Record, frozen=True):
    """All GPUs of the catalogue."""

    gpus: tuple[GpuEntry, ...]


class GpusRequest(Record, frozen=True):
    """Prints the names for --gpu of check, plan, resolve, archs, audit and export; `l4x2` is a machine with two L4.

    Example: envdoctor gpus
    """


def run(_request: GpusRequest) -> CommandResult:
    """List the GPUs of the catalogue."""
    return CommandResult(
        GpuList(
            tuple(
                GpuEntry(
                    id=gpu.id,
                    aliases=gpu.aliases,
                    name=gpu.name,
                    architecture=gpu.architecture,
                    compute_capability=gpu.capability,
                    memory_mib=gpu.memory_mib or gpu.system_memory_mib,
                    shares_system_memory=not gpu.memory_mib,
                    bandwidth=gpu.bandwidth,
                    formats=gpu.formats,
                    oldest_driver=gpu.oldest_driver,
                )
                for gpu in catalogue().values()
            )
        )
    )
