"""Human output of `envdoctor bench`."""

from __future__ import annotations

from envdoctor.output.text import Part, Text, indent, table
from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult, LoadSummary

NAMES = {
    "gemm_burst": "short matrix product",
    "gemm": "long matrix product",
    "memory": "copy within the GPU",
    "h2d": "pinned host to GPU",
    "d2h": "GPU to pinned host",
    "peer": "GPU to the next GPU",
    "allreduce_64mb": "all-reduce, 64 MiB",
    "allreduce_1gb": "all-reduce, 1 GiB",
}
STYLES = {"healthy": "ok", "slow": "warning", "failing": "error", "unknown": "unknown", "not-measured": "error"}
REASONS_SHOWN = 2  # most frequent throttle reasons


def render_benchmark(data: BenchmarkReport) -> list[Part]:
    """The measurements, the GPU state during each, then low results with their possible causes."""
    parts: list[Part] = [
        Text.assemble(("Speed", "title"), f"  {', '.join(data.gpus)}, driver {data.driver or 'unknown'}"),
        _measurements(data),
    ]
    if any(result.load for result in data.results):
        parts += [Text("\nGPU state during the measurements", style="title"), _loads(data)]
    for result in data.results:
        parts += _causes(result)
    for message in dict.fromkeys(result.message for result in data.results if result.value is None):
        names = dict.fromkeys(NAMES[result.measure] for result in data.results if result.message == message)
        parts.append(Text.assemble(("✗ ", "error"), f"{', '.join(names)}: {message}"))
    parts += [
        Text(f"{run.probe}: {_transport(run.versions)}", style="dim") for run in data.runs if _transport(run.versions)
    ]
    counts = {grade: sum(result.grade == grade for result in data.results) for grade in STYLES}
    summary = ", ".join(f"{count} {grade}" for grade, count in counts.items() if count) or "nothing measured"
    mark = ("✓ ", "ok") if data.passed else ("✗ ", "error")
    return [*parts, Text.assemble(mark, summary, (f"  in {data.seconds:.0f} s, {data.python}", "dim"))]


def _measurements(data: BenchmarkReport) -> Part:
    rows = table("GPU", "measurement", "measured", "healthy", "grade")
    for result in data.results:
        value = "-" if result.value is None else f"{_rounded(result.value)} {result.unit}"
        healthy = result.healthy
        expected = f"{_rounded(healthy.healthy_from)} to {_rounded(healthy.peak)}" if healthy else "unknown"
        grade = Text(result.grade, style=STYLES[result.grade])
        rows.add_row(_gpu(result), NAMES[result.measure], value, expected, grade)
    return rows


def _loads(data: BenchmarkReport) -> Part:
    rows = table("GPU", "measurement", "SM MHz", "mem", "°C", "W", "PCIe", "clocks limited by")
    for result in data.results:
        if load := result.load:
            rows.add_row(
                _gpu(result), result.measure, _number(load.sm_clock), _number(load.memory_clock),
                _number(load.temperature), _number(load.power), load.pcie.partition(" of ")[0], _reasons(load),
            )  # fmt: skip
    return rows


def _reasons(load: LoadSummary) -> str:
    shown = [f"{name} {share:.0%}" for name, share in load.throttle_reasons.items() if name != "idle"]
    return ", ".join(shown[:REASONS_SHOWN]) or "nothing"


def _causes(result: BenchmarkResult) -> list[Part]:
    if not result.causes or result.value is None or result.healthy is None:
        return []
    share = f", {result.value / result.healthy.typical:.0%} of the typical speed" if result.healthy.typical else ""
    head = Text.assemble(
        (f"{result.grade} ", STYLES[result.grade]),
        f"GPU {_gpu(result)}, {NAMES[result.measure]}{share}; possible causes:",
    )
    return [head, *(indent(Text(cause)) for cause in result.causes)]


def _transport(versions: dict[str, str]) -> str:
    """The transport between the GPUs, and other properties of the benchmark."""
    names = ("transport", "interface", "network", "nccl", "peer_access", "dtype")
    return ", ".join(f"{name.replace('_', ' ')} {versions[name]}" for name in names if name in versions)


def _gpu(result: BenchmarkResult) -> str:
    return "all" if result.gpu is None else str(result.gpu)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
