"""On a machine with a GPU: `check` agrees with torch and nvidia-smi, all probes pass, and training runs.

ENVDOCTOR_STACK_PYTHON=/path/to/python python -m pytest -m gpu
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = envdoctor("check", "--format", "json", home=tmp_path_factory.mktemp("home"))
    return dict(envelope(done)["data"]["machine"])


def test_driver_and_gpus_agree_with_nvidia_smi(machine: dict[str, Any]) -> None:
    query = "driver_version,name,memory.total,compute_cap"
    done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    gpus = machine["gpus"]["value"]
    assert [
        [machine["driver"]["version"]["value"], gpu["name"]["value"], str(gpu["memory_total"]["value"] >> 20),
         gpu["compute_capability"]["value"]]
        for gpu in gpus
    ] == rows  # fmt: skip


def test_gpus_agree_with_torch(machine: dict[str, Any], stack_python: Path) -> None:
    code = (
        "import json, torch; print(json.dumps([[torch.cuda.get_device_name(i),"
        " '.'.join(map(str, torch.cuda.get_device_capability(i)))] for i in range(torch.cuda.device_count())]))"
    )
    done = subprocess.run([stack_python, "-c", code], capture_output=True, text=True, check=True)
    found = [[gpu["name"]["value"], gpu["compute_capability"]["value"]] for gpu in machine["gpus"]["value"]]
    assert found == json.loads(done.stdout)


def test_all_gpu_facts_are_readable(machine: dict[str, Any]) -> None:
    for gpu in machine["gpus"]["value"]:
        unreadable = [
            name for name, fact in gpu.items() if isinstance(fact, dict) and fact.get("state") == "unreadable"
        ]
        assert unreadable == []


def test_check_reports_no_errors(tmp_path: Path) -> None:
    data = envelope(envdoctor("check", "--format", "json", home=tmp_path))["data"]
    assert [f["id"] for f in data["findings"] if f["status"] in ("error", "crashed", "unknown")] == []


def test_probes_pass_and_training_runs(stack_python: Path, tmp_path: Path) -> None:
    verified = envdoctor("verify", "--python", stack_python, "--format", "json", home=tmp_path)
    outcomes = {r["probe"]: r["outcome"] for r in envelope(verified)["data"]["results"]}
    assert set(outcomes.values()) <= {"passed", "unavailable"}, outcomes
    always_available = ("torch_matmul", "cuda_matmul", "sdpa", "triton_jit", "torch_compile", "trl_grpo")
    assert [name for name in always_available if outcomes[name] != "passed"] == []
    trained = envdoctor("train", "sort", "--python", stack_python, "--run", "run", "--format", "json", home=tmp_path)
    assert trained.returncode == 0, trained.stderr
    result = envelope(trained)["data"]["result"]
    assert result["device"] == "cuda"
    assert result["gpu"]
    assert result["after"]["greedy_exact_match"] > result["before"]["greedy_exact_match"]
