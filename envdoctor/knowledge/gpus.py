"""Properties of GPU models by name, such as compute capability, kind and peer access: gpus.toml."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.knowledge.tables import load_table

Kind = Literal["data-centre", "workstation", "consumer", "jetson"]


class GpuModel(Record, frozen=True, kw_only=True):
    """The GPUs whose names match a pattern."""

    pattern: str
    capability: str  # "9.0"
    kind: Kind
    peer: bool | None = None  # PCIe peer-to-peer; default: data-centre and workstation cards
    ecc: bool | None = None  # default: data-centre and workstation cards
    nvswitch: bool = False
    unified: bool | None = None  # uses the system's memory; default: Jetson

    @property
    def has_peer_access(self) -> bool:
        """Whether two of these GPUs can access each other's memory over PCIe."""
        return self.kind in ("data-centre", "workstation") if self.peer is None else self.peer

    @property
    def shares_memory(self) -> bool:
        """Whether it has no memory of its own and uses the system's."""
        return self.kind == "jetson" if self.unified is None else self.unified

    @property
    def has_ecc(self) -> bool:
        """Whether its memory supports ECC."""
        return self.kind in ("data-centre", "workstation") if self.ecc is None else self.ecc


def gpu_models() -> tuple[GpuModel, ...]:
    """All models in search order."""
    return load_table("gpus.toml", tuple[GpuModel, ...], "gpu")


# Names of vGPU profiles: the GPU with letters of its board, the memory in GiB and the kind of the profile.
# docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide (read on 2026-11-28)
VGPU_BOARD = lazy_pattern(r"\b([ahlv]\d{2,3})(?:dx|xm|xl|fx|fl|d|l|x|s)(?=-\d{1,3}[abcq]\b)")
GLUED_SUFFIX = lazy_pattern(r"\b([2-5]0[5-9]0|10[5-8]0|16[56]0)(ti|super|d)\b")  # `5070Ti`, `5090D`
PRO_BEHIND = lazy_pattern(r"\brtx ?([2456][05]00) pro\b")  # `RTX 6000 Pro` is an RTX PRO 6000
VGPU_RTX = lazy_pattern(r"\b(?:grid )?rtx(?=a?\d{4}(?:p?-))")


@cache
def gpu_model(name: str) -> GpuModel | None:
    """The row for a name like `NVIDIA H100 80GB HBM3`, `Tesla V100-SXM2-32GB`, `GRID T4-16Q`; None if unknown."""
    plain = plain_gpu_name(name)
    return next((model for model in gpu_models() if re.search(model.pattern, plain)), None)


def plain_gpu_name(name: str) -> str:
    """A GPU's name as the patterns expect it: `NVIDIA A100-SXM4-80GB` gives `a100 sxm4 80gb`."""
    plain = VGPU_RTX.sub("rtx ", VGPU_BOARD.sub(r"\1", name[:200].lower()))
    plain = PRO_BEHIND.sub(r"rtx pro \1", GLUED_SUFFIX.sub(r"\1 \2", plain))
    return " ".join(re.sub(r"\bnvidia\b|[-_()\[\]/,]", " ", plain).split())


def compute_capability(name: str) -> str | None:
    """The compute capability of a GPU's name, `9.0` for an H100; None if the name is unknown."""
    model = gpu_model(name)
    return model.capability if model else None
