"""Results of the benchmarks of verify, as records."""

from __future__ import annotations

from typing import Any

from envdoctor.verify import stored_results
from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult

DRIVER, GPUS, LOCK = "580.159.04", ("NVIDIA H200",), "037b3a57dfe3ad63"


def bench(*results: BenchmarkResult, **fields: Any) -> BenchmarkReport:
    """A benchmark report with these results, and defaults for the other fields."""
    defaults: dict[str, Any] = {
        "schema": stored_results.BENCH_SCHEMA, "python": "python", "when": "2026-11-21T10:05:00+00:00",
        "driver": DRIVER, "gpus": GPUS, "lock": LOCK, "results": results, "runs": (), "seconds": 40.0,
    }  # fmt: skip
    return BenchmarkReport(**defaults | fields)


def measured(measure: Any, value: float | None, grade: Any) -> BenchmarkResult:
    """One benchmark result of GPU 0: the unit follows from the measure."""
    return BenchmarkResult(measure, 0, "NVIDIA H200", value, "TFLOP/s" if measure == "gemm" else "GB/s", grade)


GOOD, SLOW = measured("gemm", 770.0, "healthy"), measured("memory", 3300.4, "slow")
