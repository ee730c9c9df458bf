"""`envdoctor check` with a fake NVML library that nvidia-ml-py loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import environment
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.paths import ROOT


def check(fake: dict[str, str], home: Path, **variables: str) -> tuple[int, dict[str, Any]]:
    env = environment(home) | {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")} | variables
    done = subprocess.run(
        [sys.executable, "-m", "envdoctor", "check", "--format", "json"],
        capture_output=True, text=True, env=env, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)["data"]


def problem_ids(data: dict[str, Any]) -> set[str]:
    return {f["id"] for f in data["findings"] if f["status"] in ("error", "warning", "crashed")}


def test_eight_healthy_gpus(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("h100x8")), tmp_path)
    assert len(data["machine"]["gpus"]["value"]) == 8
    of_this_machine = {"HOST003", "HOST006", "PROFILE-disk-full"}  # its disk and its toolkit
    assert (code, problem_ids(data) - of_this_machine) == (0, set())
    assert data["machine"]["driver"]["version"]["source"] == "nvmlSystemGetDriverVersion"


def test_driver_library_mismatch_is_reported(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("gh200", "[system]", "fail.nvmlInitWithFlags = 18")), tmp_path)
    assert code == 1
    assert "DRV001" in problem_ids(data)
    (finding,) = [f for f in data["findings"] if f["id"] == "DRV001"]
    assert finding["cause"] == "nvml-driver-library-mismatch"
    assert data["machine"]["gpus"]["state"] == "unreadable"
    # With unreadable GPUs, the condition of a CUDA profile is unknown instead of false.
    candidates = {c["profile"]: c for c in data["choice"]["candidates"]}
    (gpus,) = [c for c in candidates["x86-cu128-vllm"]["conditions"] if c["name"] == "GPUs"]
    assert gpus["holds"] is None


def test_lost_gpu_is_reported_and_others_are_read(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("h100x8", "[gpu5]", "fail = 15")), tmp_path)
    assert code == 1
    (finding,) = [f for f in data["findings"] if f["id"] == "GPU001"]
    assert "GPU 5" in finding["message"]
    assert data["machine"]["gpus"]["value"][0]["name"]["value"] == "NVIDIA H100 80GB HBM3"


def test_a_gpu_without_memory_of_its_own_has_the_memory_of_the_system(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    _, data = check(fake_nvml(machine_ini("gb10")), tmp_path)
    (gpu,) = data["machine"]["gpus"]["value"]
    memory = data["machine"]["memory"]
    assert gpu["memory_total"]["value"] == memory["total"]["value"]
    assert gpu["memory_used"]["value"] == memory["total"]["value"] - memory["available"]["value"]
    assert gpu["memory_total"]["note"] == "the system's memory, which the GPU shares"
    assert gpu["ecc"]["state"] == "absent"


def test_memory_that_another_gpu_does_not_report_is_not_the_memory_of_the_system(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    _, data = check(fake_nvml(machine_ini("gb10", "[gpu]", "name = NVIDIA H200")), tmp_path)
    (gpu,) = data["machine"]["gpus"]["value"]
    assert gpu["memory_total"]["state"] == "absent"


@pytest.mark.parametrize("value", ["", "-1", "8"])
def test_hidden_gpus_are_reported(value: str, fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("h100x8")), tmp_path, CUDA_VISIBLE_DEVICES=value)
    assert code == 1
    assert "ENV001" in problem_ids(data)


COUNT_STARTS = """
import json, os, sys
from envdoctor.cli.application import run
started = []
def record(event, arguments):
    if event == "subprocess.Popen":
        started.append(os.path.basename(arguments[0]))
sys.addaudithook(record)
run(["check", "--format", "json"])
print(json.dumps(started), file=sys.stderr)
"""


def test_check_starts_only_the_compilers(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """Interpreters, environments and the driver are read from files and NVML, without starting a process."""
    fake = fake_nvml(machine_ini("h200"))
    env = environment(tmp_path) | {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
    done = subprocess.run(
        [sys.executable, "-c", COUNT_STARTS],
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    started = json.loads(done.stderr.splitlines()[-1])
    assert len(started) <= 3, started
    assert len(set(started)) == len(started), started
    assert not [name for name in started if name.startswith("python")]
