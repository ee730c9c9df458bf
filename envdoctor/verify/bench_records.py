"""What `verify --bench` measured, and how it is graded: healthy, slow or failing, with what it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Literal

from envdoctor.core.records import Gpu, ProbeResult, Record
from envdoctor.knowledge.gpu_speeds import ExpectedSpeed, Measure, gpu_speeds, pcie_speed
from envdoctor.machine.gpu_sampler import GpuSample

Grade = Literal["healthy", "slow", "failing", "unknown", "not-measured"]


class LoadSummary(Record, frozen=True):
    """A GPU while one measurement ran on it. Clocks in MHz (medians), degrees Celsius and watts (the highest)."""

    samples: int
    sm_clock: float | None = None
    max_sm_clock: float | None = None
    memory_clock: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    throttle_reasons: dict[str, float] = {}  # the share of the samples in which each held the clocks
    pcie: str = ""  # "gen 5 x16 of gen 5 x16", the widest seen


class BenchmarkResult(Record, frozen=True):
    """One measurement: TFLOP/s of the product, GB/s of all else. `gpu` is NVML's index, None for all together."""

    measure: Measure
    gpu: int | None
    gpu_name: str
    value: float | None  # None: it could not be measured, `message` says why
    unit: str
    grade: Grade
    message: str = ""
    healthy: ExpectedSpeed | None = None  # what it was held against
    healthy_from: float | None = None
    failing_below: float | None = None
    causes: tuple[str, ...] = ()  # what it may be, by the facts that speak for it
    load: LoadSummary | None = None

    @property
    def description(self) -> str:
        """What was measured where, with its grade: `gemm of GPU 0 512 TFLOP/s, failing`."""
        where = "" if self.gpu is None else f" of GPU {self.gpu}"
        value = "" if self.value is None else f" {self.value:.4g} {self.unit},"
        return f"{self.measure}{where}{value} {self.grade.replace('-', ' ')}"


class BenchmarkReport(Record, frozen=True):
    """All measurements of one machine, in one environment."""

    schema: int
    python: str
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    results: tuple[BenchmarkResult, ...]
    runs: tuple[ProbeResult, ...]  # the scripts that measured, with their versions, seconds and output
    seconds: float
    lock: str = ""  # digest of the lock that the environment was built from, empty if unknown

    @property
    def passed(self) -> bool:
        """Whether something was measured, nothing is failing, and no script went wrong."""
        return (
            any(result.value is not None for result in self.results)
            and all(result.grade != "failing" for result in self.results)
            and all(run.outcome in ("passed", "unavailable") for run in self.runs)
        )

    @property
    def worst_grade(self) -> Literal["healthy", "slow", "failing", "unknown"]:
        """The worst grade: failing too where a script went wrong, unknown where nothing could be graded."""
        grades = {result.grade for result in self.results}
        if not self.passed:
            return "failing"
        return "slow" if "slow" in grades else "healthy" if "healthy" in grades else "unknown"


def summarize_load(samples: Sequence[GpuSample]) -> LoadSummary | None:
    """What the samples of one GPU come to; None without any."""
    if not samples:
        return None
    clocks = [sample.clocks for sample in samples if sample.clocks]
    reasons = Counter(reason for sample in samples for reason in sample.throttle_reasons)
    links = [sample.pcie for sample in samples if sample.pcie]
    link = max(links, key=lambda p: (p.generation * p.width, p.generation), default=None)
    return LoadSummary(
        samples=len(samples),
        sm_clock=median(clock.sm for clock in clocks) if clocks else None,
        max_sm_clock=clocks[-1].max_sm if clocks else None,
        memory_clock=median(clock.memory for clock in clocks) if clocks else None,
        temperature=max((s.temperature for s in samples if s.temperature is not None), default=None),
        power=max((s.power for s in samples if s.power is not None), default=None),
        power_limit=next((s.power_limit for s in samples if s.power_limit is not None), None),
        throttle_reasons={name: round(count / len(samples), 3) for name, count in reasons.most_common()},
        pcie=f"gen {link.generation} x{link.width} of gen {link.max_generation} x{link.max_width}" if link else "",
    )


def expected_speed(measure: Measure, gpu: Gpu) -> ExpectedSpeed | None:
    """What to hold a measure against: the GPU's row, for host copies else its widest PCIe link; None if unknown."""
    row = gpu_speeds(gpu.name.value or "").get(measure)
    if measure in ("peer", "allreduce_64mb", "allreduce_1gb") and not _has_nvlink(gpu):
        return None  # the rows are for NVLink; how fast PCIe peers are is the board's matter
    if row is None and measure in ("h2d", "d2h") and gpu.pcie.value:
        return pcie_speed(gpu.pcie.value.max_generation, gpu.pcie.value.max_width)
    return row.expected if row else None


def _has_nvlink(gpu: Gpu) -> bool:
    return bool(gpu.nvlink.value and gpu.nvlink.value.links)


def grade(value: float | None, healthy: ExpectedSpeed | None) -> Grade:
    """Where a number lies."""
    if value is None:
        return "not-measured"
    if healthy is None:
        return "unknown"
    if value >= healthy.healthy_from:
        return "healthy"
    return "slow" if value >= healthy.failing_below else "failing"
