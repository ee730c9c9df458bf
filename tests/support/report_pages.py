"""A report page with every part, from a recorded machine, an environment, probes, a benchmark and a run."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from support.benchmark_results import bench
from support.paths import ROOT

from envdoctor.commands.check import CheckRequest, CheckResult, run
from envdoctor.core.records import Distribution, Finding, ProbeResult, Stack, Verification, absent, known
from envdoctor.environment.find import EnvironmentSelection
from envdoctor.knowledge.gpu_speeds import Measure
from envdoctor.verify.bench_records import BenchmarkResult, expected_speed, grade
from envdoctor.verify.stored_results import VERIFICATION_SCHEMA, bench_path, verification_path, write_record

OVERRIDES = ("driver.version=550.144.03", "driver.library=580.159.04")
# Measured on an H200 machine (docs/tasks/verify.md); the matrix product is that of a throttled GPU.
SPEEDS: dict[Measure, float] = {"memory": 4270.0, "h2d": 54.6, "d2h": 55.1, "gemm": 402.5}


def make_stack(python: Path, *distributions: Distribution) -> Stack:
    """An environment with these distributions."""
    found = {each.name: each for each in (Distribution(name="vllm", version="0.26.0", source="uv"), *distributions)}
    return Stack(
        kind=known("venv", "pyvenv.cfg"), python=known(str(python), "pyvenv.cfg"),
        shadowed=known((), "site-packages"),
        python_version=known("3.12.3", "pyvenv.cfg"), headers=known(True, "include"), torch=absent("site-packages"),
        distributions=known(found, "site-packages"), extensions=known((), "site-packages"),
        cuda_available=absent("not a report"), uses=known((), "none"),
    )  # fmt: skip


def make_check(stack: Stack | None, *findings: Finding) -> CheckResult:
    """The result of `check` for a recorded H200 with an old kernel module."""
    data = run(CheckRequest(machine="h200", facts=OVERRIDES)).data
    path = str(Path(stack.python.value or "").parent.parent) if stack else ""
    return msgspec.structs.replace(
        data, stack=stack, findings=(*data.findings, *findings), environment=EnvironmentSelection(path, "--venv")
    )


def store_results(python: Path, check: CheckResult, message: str = "all products within the error bound") -> None:
    """Store a verification and a benchmark of an environment."""
    probes = (
        ProbeResult(
            "torch_matmul", "passed", message, 3.7, {"seed": 7, "forward_error": 0.0508}, {"forward_error": 1}
        ),
        ProbeResult("sdpa", "failed", message, 1.2, output=f"Traceback\n{message}", cause=message),
        ProbeResult("flash_attn3", "unavailable", "flash_attn_interface is not installed", 0.1),
    )
    when, gpus = "2026-11-21T10:05:00+00:00", ("NVIDIA H200",)
    required = ("torch_matmul", "sdpa")
    write_record(
        verification_path(python),
        Verification(VERIFICATION_SCHEMA, str(python), when, "580.159.04", gpus, "", required, probes),
    )
    (gpu, *_) = check.machine.gpus.value or ()
    results = []
    for measure, value in SPEEDS.items():
        healthy = expected_speed(measure, gpu)
        unit, causes = ("TFLOP/s", (f"clocks limited: {message}",)) if measure == "gemm" else ("GB/s", ())
        found = BenchmarkResult(measure, 0, "NVIDIA H200", value, unit, grade(value, healthy))
        results.append(msgspec.structs.replace(found, healthy=healthy, causes=causes))
    write_record(bench_path(python), bench(*results, python=str(python)))


def write_run(runs: Path, name: str = "sort-1", log: str = "step 200") -> Path:
    """The recorded run `sort`, as a run directory."""
    recorded, run = ROOT / "tests" / "data" / "recorded_runs", runs / name
    run.mkdir(parents=True)
    settings = {"schema": 1, "recipe": "sort", "settings": {"learning_rate": 2e-4}}
    (run / "run.json").write_text(json.dumps(settings))
    (run / "metrics.csv").write_bytes((recorded / "sort.csv").read_bytes())
    evaluations = json.loads((recorded / "sort.json").read_text())["evaluations"]
    (run / "events.jsonl").write_text("".join(json.dumps({"event": "eval", **each}) + "\n" for each in evaluations))
    (run / "train.log").write_text(log)
    return run
