"""How fast healthy GPUs are, by name and by PCIe link: what `verify --bench` holds its numbers against."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table

Measure = Literal["gemm", "memory", "h2d", "d2h", "peer", "allreduce_64mb", "allreduce_1gb"]

HEALTHY_SHARE = 0.90  # of what is typical
FAILING_SHARE = 0.75  # below that; between the two it is slow


class Healthy(Record, frozen=True, kw_only=True):
    """What a measure gives on healthy machines: TFLOP/s of `gemm`, GB/s of all others."""

    peak: float  # by the data sheet
    source: str
    date: str
    typical: float | None = None
    low: float | None = None  # where healthy begins, if not at 90 % of typical
    why: str = ""

    @property
    def healthy_from(self) -> float:
        """The smallest healthy number."""
        return self.low if self.low is not None else (self.typical or 0.0) * HEALTHY_SHARE

    @property
    def failing_below(self) -> float:
        """What is not merely slow."""
        return self.healthy_from * FAILING_SHARE / HEALTHY_SHARE


class GpuSpeed(Healthy, frozen=True, kw_only=True):
    """One measure of a family of GPUs that share a pattern of their name."""

    gpu: str
    pattern: str
    measure: Measure

    @property
    def healthy(self) -> Healthy:
        """What it says of the measure, without of which GPU."""
        return Healthy(
            peak=self.peak, source=self.source, date=self.date, typical=self.typical, low=self.low, why=self.why
        )


class PcieSpeed(Record, frozen=True, kw_only=True):
    """What pinned host memory copies reach over 16 lanes of a PCIe generation."""

    generation: int
    typical: float
    peak: float
    source: str
    date: str


@cache
def gpu_speed_table() -> tuple[GpuSpeed, ...]:
    """All rows, in the order in which they are searched."""
    return tuple(msgspec.convert(read_table("gpu_speeds.toml")["speed"], list[GpuSpeed]))


@cache
def gpu_speeds(name: str) -> dict[Measure, GpuSpeed]:
    """The rows of a name as NVML tells it, `NVIDIA A100-SXM4-80GB`, by measure; empty if the GPU is unknown."""
    plain = " ".join(re.sub(r"\bnvidia\b|[-_()\[\]/,]", " ", name[:200].lower()).split())
    gpu = next((row.gpu for row in gpu_speed_table() if re.search(row.pattern, plain)), None)
    return {row.measure: row for row in gpu_speed_table() if row.gpu == gpu}


@cache
def pcie_speed(generation: int, width: int) -> Healthy | None:
    """What a PCIe link gives; None for a generation of which no measurement is known."""
    rows = msgspec.convert(read_table("gpu_speeds.toml")["pcie"], list[PcieSpeed])
    row = next((row for row in rows if row.generation == generation), None)
    if row is None or width <= 0:
        return None
    lanes = width / 16
    why = f"PCIe generation {generation} x{width}: the wire's rate less packet headers"
    return Healthy(typical=row.typical * lanes, peak=row.peak * lanes, why=why, source=row.source, date=row.date)
