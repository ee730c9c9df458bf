"""Records of the GPU benchmark, and the grading of a measurement: healthy, slow or failing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Literal

from envdoctor.core.record import Record
from envdoctor.core.records import Gpu, ProbeResult
from envdoctor.knowledge.gpu_speeds import ExpectedSpeed, Measure, gpu_speeds, pcie_speed
from envdoctor.machine.gpu_sampler import GpuSample

OverallGrade = Literal["healthy", "slow", "failing", "unknown"]
Grade = Literal[OverallGrade, "not-measured"]


class LoadSummary(Record, frozen=True):
    """The state of a GPU during one measurement: median clocks in MHz, highest temperature in °C and power in W."""

    samples: int
    sm_clock: float | None = None
    max_sm_clock: float | None = None
    memory_clock: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    throttle_reasons: dict[str, float] = {}  # share of the samples in which each reason limited the clocks
    pcie: str = ""  # "gen 5 x16 of gen 5 x16", the fastest link of all samples


class BenchmarkResult(Record, frozen=True):
    """One measurement in TFLOP/s (matrix product) or GB/s. `gpu` is NVML's index, None for all GPUs together."""

    measure: Measure
    gpu: int | None
    gpu_name: str
    value: float | None  # None if the measurement failed; `message` gives the reason
    unit: str
    grade: Grade
    message: str = ""
    healthy: ExpectedSpeed | None = None  # the speeds that it is graded against
    healthy_from: float | None = None
    failing_below: float | None = None
    causes: tuple[str, ...] = ()  # possible causes of a low value, each supported by a fact
    load: LoadSummary | None = None

    @property
    def description(self) -> str:
        """The measurement and its grade: `gemm of GPU 0 512 TFLOP/s, failing`."""
        where = "" if self.gpu is None else f" of GPU {self.gpu}"
        value = "" if self.value is None else f" {self.value:.4g} {self.unit},"
        return f"{self.measure}{where}{value} {self.grade.replace('-', ' ')}"


class BenchmarkReport(Record, frozen=True):
    """All measurements of one machine in one environment."""

    schema: int
    python: str
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    results: tuple[BenchmarkResult, ...]
    runs: tuple[ProbeResult, ...]  # results of the benchmark scripts, with versions, seconds and output
    seconds: float
    lock: str = ""  # digest of the lock that the environment was built from, empty if unknown

    @property
    def passed(self) -> bool:
        """Whether there is a measurement, none is failing, and every script succeeded or was unavailable."""
        return (
            any(result.value is not None for result in self.results)
            and all(result.grade != "failing" for result in self.results)
            and all(run.outcome in ("passed", "unavailable") for run in self.runs)
        )

    @property
    def worst_grade(self) -> OverallGrade:
        """The worst grade: failing also if a script failed, unknown if nothing could be graded."""
        grades = {result.grade for result in self.results}
        if not self.passed:
            return "failing"
        return "slow" if "slow" in grades else "healthy" if "healthy" in grades else "unknown"


def summarize_load(samples: Sequence[GpuSample]) -> LoadSummary | None:
    """Summarise the samples of one GPU; None without samples."""
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
    """The expected speed: the GPU's table row, otherwise for host copies its PCIe link; None if unknown."""
    row = gpu_speeds(gpu.name.value or "").get(measure)
    if measure in ("peer", "allreduce_64mb", "allreduce_1gb") and not (gpu.nvlink.value and gpu.nvlink.value.links):
        return None  # the rows are for NVLink; the speed of PCIe peers depends on the mainboard
    if row is None and measure in ("h2d", "d2h") and gpu.pcie.value:
        return pcie_speed(gpu.pcie.value.max_generation, gpu.pcie.value.max_width)
    return row.expected if row else None


def grade(value: float | None, healthy: ExpectedSpeed | None) -> Grade:
    """The grade of a value."""
    if value is None:
        return "not-measured"
    if healthy is None:
        return "unknown"
    if value >= healthy.healthy_from:
        return "healthy"
    return "slow" if value >= healthy.failing_below else "failing"
