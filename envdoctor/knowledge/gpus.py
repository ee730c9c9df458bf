"""What is known of a GPU by its name: compute capability, kind, peer access."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from envdoctor.core.records import Record

Kind = Literal["data-centre", "workstation", "consumer", "jetson"]


class GpuModel(Record, frozen=True, kw_only=True):
    """A family of GPUs that share a pattern of their name."""

    pattern: str
    capability: str  # "9.0"
    kind: Kind
    peer: bool | None = None  # PCIe peer-to-peer; by default all but consumer cards
    ecc: bool | None = None  # by default data-centre and workstation cards
    nvswitch: bool = False

    @property
    def has_peer_access(self) -> bool:
        """Whether two of these reach each other's memory over PCIe."""
        return self.kind in ("data-centre", "workstation") if self.peer is None else self.peer

    @property
    def has_ecc(self) -> bool:
        """Whether its memory can have ECC."""
        return self.kind in ("data-centre", "workstation") if self.ecc is None else self.ecc


@cache
def gpu_models() -> tuple[GpuModel, ...]:
    """The table, in the order in which it is searched."""
    text = (Path(__file__).parent / "gpus.toml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(tomllib.loads(text)["gpu"], list[GpuModel]))


@cache
def gpu_model(name: str) -> GpuModel | None:
    """The row of a name like `NVIDIA H100 80GB HBM3`, `Tesla V100-SXM2-32GB`, `GRID T4-16Q`; None if unknown."""
    plain = " ".join(re.sub(r"\bnvidia\b|[-_()\[\]/,]", " ", name[:200].lower()).split())
    return next((model for model in gpu_models() if re.search(model.pattern, plain)), None)


def compute_capability(name: str) -> str | None:
    """The compute capability of a GPU's name, `9.0` for an H100; None if the name is unknown."""
    model = gpu_model(name)
    return model.capability if model else None
