"""Which probes run in parallel, in which order, and which run alone, with real processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from envdoctor.verify import probe_batches, runner
from envdoctor.verify.probe_batches import Capacity, plan_batches
from envdoctor.verify.probe_process import MAX_THREADS, probe_variables
from envdoctor.verify.probe_scripts import bundled_probes, read_probes
from envdoctor.verify.runner import verify_interpreter

GIB = 1 << 30
# A probe that reports its start, its end and its number of threads. It waits until `together` probes have begun.
SCRIPT = """
import json, os, sys, time
from pathlib import Path
DEADLINE_SECONDS = {deadline}
NEEDS_GPU = {gpu}
SECONDS = {seconds}
ALONE = {alone}
began = time.time()
beginnings = Path(__file__).parent / ".began"
beginnings.mkdir(exist_ok=True)
(beginnings / Path(__file__).stem).touch()
while len(list(beginnings.iterdir())) < {together} and time.time() < began + DEADLINE_SECONDS:
    time.sleep(0.01)
time.sleep({sleep})
report = {{"outcome": "passed", "message": "", "numbers": {{"began": began, "ended": time.time()}},
        "versions": {{"threads": os.environ["OMP_NUM_THREADS"]}}}}
Path(sys.argv[1]).write_text(json.dumps(report))
"""
LARGE = Capacity(cores=16, memory=100 * GIB, gpu_memory=130 * GIB)
SMALL = Capacity(cores=2, memory=20 * GIB, gpu_memory=130 * GIB)


def write_probe(
    folder: Path, name: str, *, gpu: bool = False, alone: bool = False, seconds: float = 5, **more: float
) -> None:
    values = {"deadline": 60, "sleep": 0.2, "together": 1} | more
    (folder / f"{name}.py").write_text(SCRIPT.format(gpu=gpu, alone=alone, seconds=seconds, **values))


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Two CPU probes, four GPU probes and two that run alone."""
    return write_probes(tmp_path)


def write_probes(folder: Path, *, together: int = 1) -> Path:
    write_probe(folder, "cpu_long", seconds=20, together=together)
    write_probe(folder, "cpu_short", seconds=1, together=together)
    for name, seconds in (("gpu_a", 2.0), ("gpu_b", 30.0), ("gpu_c", 10.0), ("gpu_d", 3.0)):
        write_probe(folder, name, gpu=True, seconds=seconds, together=together)
    write_probe(folder, "alone_gpu", gpu=True, alone=True, seconds=90)
    write_probe(folder, "alone_cpu", alone=True, seconds=1)
    return folder


def run(scripts: Path, capacity: Capacity, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, dict]]:
    """The names in start order, and the begin and end of each probe."""
    monkeypatch.setattr(runner, "read_capacity", lambda _: capacity)
    started: list[str] = []
    names = [probe.name for probe in read_probes(scripts)]
    verification = verify_interpreter(Path(sys.executable), names, required=(), driver="", gpus=(), lock="",
                          on_start=started.append, folder=scripts)  # fmt: skip
    assert verification.passed
    assert [result.probe for result in verification.results] == names
    windows = {
        result.probe: result.numbers | {"threads": int(result.versions["threads"])} for result in verification.results
    }
    return started, windows


def overlap(windows: dict[str, dict], name: str) -> set[str]:
    window = windows[name]
    return {
        other
        for other, times in windows.items()
        if other != name and times["began"] < window["ended"] and window["began"] < times["ended"]
    }


def test_large_machine_runs_gpu_probes_in_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, windows = run(write_probes(tmp_path, together=6), LARGE, monkeypatch)
    assert set(started[:6]) == {"gpu_b", "cpu_long", "gpu_c", "gpu_d", "gpu_a", "cpu_short"}
    assert started[6:] == ["alone_gpu", "alone_cpu"]
    assert overlap(windows, "gpu_b") == {"gpu_a", "gpu_c", "gpu_d", "cpu_long", "cpu_short"}
    assert overlap(windows, "alone_gpu") == overlap(windows, "alone_cpu") == set()
    assert min(windows[name]["began"] for name in ("alone_gpu", "alone_cpu")) >= max(
        times["ended"] for name, times in windows.items() if not name.startswith("alone")
    )


def test_two_cores_run_gpu_probes_one_at_a_time_after_cpu_probes(
    scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, windows = run(scripts, SMALL, monkeypatch)
    assert set(started[:2]) == {"cpu_long", "cpu_short"}
    assert started[2:] == ["gpu_b", "gpu_c", "gpu_d", "gpu_a", "alone_gpu", "alone_cpu"]
    for name in started[2:]:
        assert overlap(windows, name) == set(), name


def test_longest_probes_start_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("a", 1.0), ("b", 9.0), ("c", 5.0), ("d", 7.0), ("e", 2.0)):
        write_probe(tmp_path, name, gpu=True, seconds=seconds)
    started, _ = run(tmp_path, Capacity(cores=6, memory=100 * GIB, gpu_memory=130 * GIB), monkeypatch)
    assert set(started[:3]) == {"b", "d", "c"}
    assert started[3:] == ["e", "a"]


@pytest.mark.parametrize(
    ("capacity", "workers"),
    [
        (LARGE, [8, 1]),
        (Capacity(16, 100 * GIB, 13 * GIB), [3, 1]),  # three fit into the GPU's free memory
        (Capacity(16, 100 * GIB, 9 * GIB), [4, 2, 1]),
        (Capacity(16, 100 * GIB, 1 * GIB), [4, 1, 1]),
        (Capacity(16, 100 * GIB, 0), [4, 1, 1]),  # no GPU: each is unavailable after a moment
        (Capacity(16, 13 * GIB, 130 * GIB), [4, 1]),
        (Capacity(16, 2 * GIB, 130 * GIB), [2, 1, 1]),
        (SMALL, [2, 1, 1]),
    ],
)
def test_number_of_workers(tmp_path: Path, capacity: Capacity, workers: list[int]) -> None:
    for number in range(4):
        write_probe(tmp_path, f"cpu_{number}")
    for number in range(8):
        write_probe(tmp_path, f"gpu_{number}", gpu=True)
    write_probe(tmp_path, "alone", gpu=True, alone=True)
    assert [batch.workers for batch in plan_batches(read_probes(tmp_path), capacity)] == workers


def test_cores_are_divided_among_parallel_probes(tmp_path: Path) -> None:
    cores = len(probe_batches.os.sched_getaffinity(0))
    for workers in (1, 2, 64):
        threads = int(probe_variables(tmp_path, workers)["OMP_NUM_THREADS"])
        assert threads == min(MAX_THREADS, max(1, cores // workers))


def test_bundled_probes_that_run_alone() -> None:
    probes = bundled_probes()
    assert {probe.name for probe in probes if probe.alone} == {"nccl_allreduce", "vllm_generate"}
    assert not any(probe.bench for probe in probes)
    assert json.dumps(sorted(probe.name for probe in probes)).count("bench_") == 0
