"""`envdoctor quickstart` from end to end on this machine, and the files that it leaves."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time

import pytest
from support.command import envdoctor, envelope, environment
from support.quickstart import Quickstart

from envdoctor.verify.probe_scripts import bundled_probes

pytestmark = pytest.mark.stack


def test_quickstart_succeeds_and_learns(quickstart: Quickstart) -> None:
    assert quickstart.done.returncode == 0, quickstart.done.stderr[-4000:]
    data = json.loads(quickstart.done.stdout)["data"]
    assert data["installed"]["installed"]["torch_build"] == "cpu"
    passed = {result["probe"] for result in data["verification"]["results"] if result["outcome"] == "passed"}
    assert set(data["verification"]["required"]) <= passed
    assert {probe.name for probe in bundled_probes() if probe.quick and not probe.needs_gpu} <= passed
    assert all(result["versions"] for result in data["verification"]["results"] if result["outcome"] == "passed")
    before, after = (data["trained"]["result"][when] for when in ("before", "after"))
    # Seed 1 rises from 0.62 to 0.82 and from 0.19 to 0.45 in 30 steps with three digits; a seed that does not learn
    # stays at its initial value.
    assert after["greedy_exact_match"] >= before["greedy_exact_match"] + 0.1
    assert after["sampled_exact_match"] >= before["sampled_exact_match"] + 0.2


def test_the_run_has_all_files(quickstart: Quickstart) -> None:
    (run,) = (quickstart.home / "runs").iterdir()
    assert {"run.json", "events.jsonl", "metrics.csv", "generations.csv", "curves.png", "result.json",
            "train.log", "checkpoints", "model"} <= {path.name for path in run.iterdir()}  # fmt: skip
    configuration = json.loads((run / "run.json").read_text())
    assert (configuration["recipe"], configuration["profile"]) == ("sort", "cpu")
    with (run / "metrics.csv").open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file)]
    assert steps == list(range(1, configuration["settings"]["max_steps"] + 1))
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_torch_is_the_cpu_build_without_cuda_packages(quickstart: Quickstart) -> None:
    code = (
        "import importlib.metadata as m, torch; print(torch.__version__, torch.version.cuda,"
        " [d.name for d in m.distributions() if d.name.startswith('nvidia-')])"
    )
    done = subprocess.run([quickstart.python, "-c", code], capture_output=True, text=True, check=True)
    version, cuda, nvidia = done.stdout.split(maxsplit=2)
    assert version.endswith("+cpu")
    assert (cuda, nvidia.strip()) == ("None", "[]")


def test_a_second_install_changes_nothing(quickstart: Quickstart) -> None:
    before = quickstart.python.parent.stat().st_mtime_ns
    done = envdoctor("install", "--profile", "cpu", "--format", "json", home=quickstart.home)
    assert envelope(done)["data"]["unchanged"] is True
    assert quickstart.python.parent.stat().st_mtime_ns == before


def test_a_changed_environment_is_no_longer_verified(quickstart: Quickstart) -> None:
    marker = quickstart.python.parent.parent / "envdoctor.json"
    original = marker.read_text()
    try:
        marker.write_text(original.replace(json.loads(original)["lock"], "0" * 16))
        done = envdoctor("train", "sort", home=quickstart.home)
    finally:
        marker.write_text(original)
    assert done.returncode == 1
    assert "is out of date" in done.stderr


@pytest.mark.early
def test_an_interrupted_run_in_the_verified_environment_can_be_resumed(quickstart: Quickstart) -> None:
    """Training needs no option for the environment that quickstart verified."""
    settings = [
        "--set",
        "sft_steps=2",
        "--set",
        "eval_steps=0",
        "--set",
        "save_steps=1000",
        "--set",
        "max_steps=2000",
    ]
    command = [sys.executable, "-m", "envdoctor", "train", "sort", *settings, "--run", "stopped"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             cwd=quickstart.home, env=environment(quickstart.home))  # fmt: skip
    metrics = quickstart.home / "stopped/metrics.csv"
    for _ in range(1200):
        if metrics.exists() and len(metrics.read_text().splitlines()) > 3:
            break
        time.sleep(0.1)
    child.terminate()  # as a scheduler does
    _, error = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "--resume latest" in error
    assert list((quickstart.home / "stopped/checkpoints").glob("checkpoint-*/complete.json"))
    done = len(metrics.read_text().splitlines()) - 1
    run = quickstart.home / "stopped/run.json"
    run.write_text(run.read_text().replace('"max_steps": 2000', f'"max_steps": {done + 2}'))
    resume = ["train", "sort", "--run", "stopped", "--resume", "latest", "--format", "json"]
    again = envdoctor(*resume, home=quickstart.home)
    assert again.returncode == 0, again.stderr
    result = envelope(again)["data"]["result"]
    assert (result["resumed_from"], result["steps"]) == (done, done + 2)
    third = envdoctor("train", "sort", "--run", "stopped", home=quickstart.home)
    assert third.returncode == 2
    assert "not empty" in third.stderr
