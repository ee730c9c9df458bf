"""Numbers, sizes and lists of the output at the values where their format changes."""

from __future__ import annotations

import msgspec
from support.cases import each_case

from envdoctor.core.records import Fact
from envdoctor.machine.gpu_usage import GpuUsage
from envdoctor.machine.recorded import read_recorded
from envdoctor.output import bench, machine, planning, run_lines, runs
from envdoctor.output.layout import plain_text
from envdoctor.training.runs.state import RunState

MIB, GIB = 1 << 20, 1 << 30


@each_case(
    ("shown", "expected"),
    [
        (machine.gib(GIB), "1.0 GiB"), (machine.gib(GIB - MIB), "1023 MiB"), (machine.gib(0), "0 MiB"),
        (machine._limit(0), "0"), (machine._limit(-1), "unlimited"),
        (machine._memory_limit(0), "0 MiB"), (machine._memory_limit(-1), "unlimited"),
        (planning._count(10**9), "1.00 G"), (planning._count(999_000_000), "999 M"),
        (planning._gib(GIB // 10), "0.100"), (planning._gib(107374183), "0.1"), (planning._gib(-GIB), "-1.0"),
        (runs._size(MIB), "1.0 MiB"), (runs._size(MIB - 1024), "1023.0 KiB"),
        (bench._rounded(100.0), "100"), (bench._rounded(99.5), "99.5"), (bench._number(None), "-"),
        (run_lines.span(59.4), "59 s"), (run_lines.span(60), "1:00"), (run_lines.span(3599), "59:59"),
        (run_lines.span(3600), "1:00:00"), (run_lines.span(86399), "23:59:59"), (run_lines.span(86400), "1 d 0 h"),
        (run_lines.sparkline([1.0, 2.0], run_lines.MIN_SPARKLINE_WIDTH), "▁█"),
        (run_lines.sparkline([1.0, 2.0], run_lines.MIN_SPARKLINE_WIDTH - 1), ""),
    ],
)  # fmt: skip
def test_formats(shown: str, expected: str) -> None:
    assert shown == expected


def test_metrics_of_a_running_step() -> None:
    metrics = {"truncated": 0.25, "frac_reward_zero_std": 0.5, "kl": 0.01, "tokens_per_second": 1234.0}
    state = RunState(metrics=metrics | {"memory_gib": 7.0}, shares={"generation": 0.75})
    assert run_lines._policy(state) == ["KL 0.01", "truncated 25 %", "no signal 50 %"]
    assert run_lines._speed(state) == ["1,234 tokens/s", "generation 75 %", "peak 7 GiB"]
    gpu = GpuUsage(index=1, name="H200", busy=0.5, memory_used=3 * GIB, memory_total=GIB << 3, power=70.0)
    assert run_lines._gpu(gpu) == ["GPU 1", "50 % busy", "3.0 of 8 GiB", "70 W", "H200"]


def test_long_variables_of_a_machine_are_cut() -> None:
    variables = {"SHORT": "x" * 99, "LONG": "y" * 100 + "z"}
    h200 = read_recorded("h200")
    changed = msgspec.structs.replace(h200, environment=Fact(value=variables, source="test"))
    shown = [line for line in plain_text(machine.machine_tables(changed)).splitlines() if "  environment" in line]
    assert [line.split()[1] for line in shown[-2:]] == ["x" * 99, "y" * 100 + "…"]
