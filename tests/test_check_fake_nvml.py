"""`envdoctor check` from end to end over a fake NVML library that the real binding loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import environment
from fakenvml.fixture import FakeNvml, machine_ini


def check(fake: dict[str, str], home: Path, **variables: str) -> tuple[int, dict[str, Any]]:
    env = environment(home) | {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")} | variables
    done = subprocess.run(
        [sys.executable, "-m", "envdoctor", "check", "--format", "json"],
        capture_output=True, text=True, env=env, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)["data"]


def ids(data: dict[str, Any]) -> set[str]:
    return {f["id"] for f in data["findings"] if f["status"] in ("error", "warning", "crashed")}


def test_eight_healthy_gpus(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("h100x8")), tmp_path)
    assert len(data["machine"]["gpus"]["value"]) == 8
    assert (code, ids(data) - {"HOST003", "HOST006"}) == (0, set())
    assert data["machine"]["driver"]["version"]["source"] == "nvmlSystemGetDriverVersion"


def test_a_mismatch_of_driver_and_library_is_named(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("gh200", "[system]", "fail.nvmlInitWithFlags = 18")), tmp_path)
    assert code == 1
    assert "DRV001" in ids(data)
    (finding,) = [f for f in data["findings"] if f["id"] == "DRV001"]
    assert finding["cause"] == "nvml-driver-library-mismatch"
    assert data["machine"]["gpus"]["state"] == "unreadable"
    # Unreadable GPUs are not "no GPU": no CUDA profile is chosen, and the trace says why.
    reasons = {c["profile"]: c for c in data["choice"]["candidates"]}
    (gpus,) = [c for c in reasons["x86-cu128-vllm"]["conditions"] if c["name"] == "GPUs"]
    assert gpus["holds"] is None


def test_one_lost_gpu_is_named_and_the_other_still_read(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("h100x8", "[gpu5]", "fail = 15")), tmp_path)
    assert code == 1
    (finding,) = [f for f in data["findings"] if f["id"] == "GPU001"]
    assert "GPU 5" in finding["message"]
    assert data["machine"]["gpus"]["value"][0]["name"]["value"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("value", ["", "-1", "8"])
def test_hidden_gpus_are_named(value: str, fake_nvml: FakeNvml, tmp_path: Path) -> None:
    code, data = check(fake_nvml(machine_ini("h100x8")), tmp_path, CUDA_VISIBLE_DEVICES=value)
    assert code == 1
    assert "ENV001" in ids(data)
