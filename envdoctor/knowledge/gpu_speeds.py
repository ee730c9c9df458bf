"""Speeds of healthy GPUs, by name and by PCIe link, that `bench` compares its results with."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from msgspec import structs

from envdoctor.core.record import Record
from envdoctor.knowledge.gpus import plain_gpu_name
from envdoctor.knowledge.tables import TableRow, load_table

Measure = Literal["gemm_burst", "gemm", "memory", "h2d", "d2h", "peer", "allreduce_64mb", "allreduce_1gb"]

# Of the speed of a burst, where the sustained speed was not measured. An H100 at its power limit has 0.88.
SUSTAINED_SHARE = 0.8
HEALTHY_SHARE = 0.90  # of the typical speed
FAILING_SHARE = 0.75  # below it the GPU fails; between the two it is slow


class ExpectedSpeed(Record, frozen=True, kw_only=True):
    """The speed of a healthy machine: TFLOP/s for `gemm_burst` and `gemm`, GB/s for all other measures."""

    peak: float  # of the data sheet
    source: str
    date: str
    typical: float | None = None
    low: float | None = None  # lower limit of healthy speeds, if not 90 % of typical
    why: str = ""

    @property
    def healthy_from(self) -> float:
        """The lowest healthy speed."""
        return self.low if self.low is not None else (self.typical or 0.0) * HEALTHY_SHARE

    @property
    def failing_below(self) -> float:
        """A lower speed is a failure, not only slow."""
        return self.healthy_from * FAILING_SHARE / HEALTHY_SHARE


class GpuSpeed(ExpectedSpeed, frozen=True, kw_only=True):
    """One measure of the GPUs whose names match a pattern."""

    gpu: str
    pattern: str
    measure: Measure

    @property
    def expected(self) -> ExpectedSpeed:
        """The speed without the GPU's name."""
        return ExpectedSpeed(
            peak=self.peak, source=self.source, date=self.date, typical=self.typical, low=self.low, why=self.why
        )


class PcieSpeed(TableRow, frozen=True, kw_only=True):
    """The speed of copies from and to pinned host memory over 16 lanes of a PCIe generation."""

    generation: int
    typical: float
    peak: float


def gpu_speed_table() -> tuple[GpuSpeed, ...]:
    """All rows in search order."""
    return load_table("gpu_speeds.toml", tuple[GpuSpeed, ...], "speed")


@cache
def gpu_speeds(name: str) -> dict[Measure, GpuSpeed]:
    """The rows for a name as NVML reports it, `NVIDIA A100-SXM4-80GB`, by measure; empty if the GPU is unknown."""
    plain = plain_gpu_name(name)
    gpu = next((row.gpu for row in gpu_speed_table() if re.search(row.pattern, plain)), None)
    rows = {row.measure: row for row in gpu_speed_table() if row.gpu == gpu}
    if (burst := rows.get("gemm_burst")) and burst.typical and "gemm" not in rows:
        why = f"{SUSTAINED_SHARE:.0%} of the speed of a burst: the sustained speed of this GPU was not measured"
        rows["gemm"] = structs.replace(burst, measure="gemm", typical=burst.typical * SUSTAINED_SHARE, why=why)
    return rows


@cache
def pcie_speed(generation: int, width: int) -> ExpectedSpeed | None:
    """The expected speed of a PCIe link; None for a generation without a measurement."""
    rows = load_table("gpu_speeds.toml", tuple[PcieSpeed, ...], "pcie")
    row = next((row for row in rows if row.generation == generation), None)
    if row is None or width <= 0:
        return None
    lanes = width / 16
    why = f"PCIe generation {generation} x{width}: link rate minus packet headers"
    return ExpectedSpeed(
        typical=row.typical * lanes, peak=row.peak * lanes, why=why, source=row.source, date=row.date
    )
