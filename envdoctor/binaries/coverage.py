"""GPU code of a compiled file that a GPU of a given compute capability can run."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record
from envdoctor.core.records import KernelCode
from envdoctor.knowledge.architectures import PTX_OF_CUDA, Capability, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import driver_of_cuda
from envdoctor.knowledge.versions import major_minor

Verdict = Literal["native", "mixed", "ptx", "none"]


class TargetGpu(Record, frozen=True):
    """A compute capability to check, and the driver that would compile PTX for it."""

    capability: str  # "9.0"
    name: str = ""  # of the GPU, if it is a GPU of a machine
    driver: str = ""
    cuda: str = ""  # newest CUDA release whose PTX that driver compiles


class Coverage(Record, frozen=True, kw_only=True):
    """The kernel containers of a file that one GPU can run."""

    capability: str
    verdict: Verdict  # mixed: some containers native, some as PTX; none: no container
    native: int = 0
    ptx: int = 0  # compiled by the driver at first use
    none: int = 0
    needs_cuda: str = ""  # CUDA release that introduced the newest PTX ISA that must be compiled
    needs_driver: str = ""
    compiles: bool | None = None  # whether the driver supports that PTX ISA; None: no PTX, or the driver is unknown

    @property
    def total(self) -> int:
        """Number of kernel containers."""
        return self.native + self.ptx + self.none

    @property
    def runs(self) -> bool:
        """Whether the GPU can run any container."""
        return self.native > 0 or (self.ptx > 0 and self.compiles is not False)


def compute_coverage(code: KernelCode, gpu: TargetGpu) -> Coverage:
    """Count the containers that a GPU runs. Native code is preferred to PTX, as in the driver."""
    major, _, minor = gpu.capability.partition(".")
    capability: Capability = (int(major), int(minor))
    counts = {"native": 0, "ptx": 0, "none": 0}
    for architectures, number in code.containers.items():
        names = architectures.split()
        kind = "native" if runs_native(names, capability) else "ptx" if runs_as_ptx(names, capability) else "none"
        counts[kind] += number
    native, ptx = counts["native"], counts["ptx"]
    verdict: Verdict = "mixed" if native and ptx else "native" if native else "ptx" if ptx else "none"
    cuda = cuda_of_ptx(code.ptx_isa) if ptx else ""
    return Coverage(
        capability=gpu.capability,
        verdict=verdict,
        **counts,
        needs_cuda=cuda,
        needs_driver=driver_of_cuda(cuda) if cuda else "",
        compiles=major_minor(gpu.cuda) >= major_minor(cuda) if cuda and gpu.cuda else None,
    )


def cuda_of_ptx(isa: str) -> str:
    """The first CUDA release with a known driver that compiles a PTX ISA version: 8.7 gives 12.8; "" for none."""
    releases = (
        cuda for cuda, known in PTX_OF_CUDA.items() if major_minor(known) >= major_minor(isa) and driver_of_cuda(cuda)
    )
    return next(releases, "")
