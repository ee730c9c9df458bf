"""Launchers that start real trainers: several processes, several nodes on this machine, and signals."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, environment
from support.slurm_cluster import wait_for
from support.slurm_runs import TINY_SETTINGS, last_step
from support.stacks import isolated_forking
from support.trainer_runs import read_events

pytestmark = pytest.mark.stack


def train_arguments(python: Path, run: Path, *options: str, **settings: Any) -> list[str]:
    assignments = [f"--set={key}={value}" for key, value in (TINY_SETTINGS | settings).items()]
    return ["train", "sort", "--unverified", f"--python={python}", f"--run={run}", *assignments, *options]


def read_result(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    return result


def test_accelerate_starts_several_processes(stack_python: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = envdoctor(
        *train_arguments(isolated_forking(stack_python), run, "--launcher=accelerate", "--gpus=2", max_steps=2),
        home=tmp_path,
        ROCR_VISIBLE_DEVICES="0",
        PYTHON_EXEC=str(isolated_forking(stack_python)),
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("torchelastic_*"))
    assert (read_result(run)["steps"], read_result(run)["ranks"]) == (2, 2)
    assert "distributed_type: MULTI_GPU" in (run / "accelerate.yaml").read_text()


def test_torchrun_on_two_nodes(stack_python: Path, tmp_path: Path) -> None:
    """The command of the first node prints the line to run on the other."""
    run, python = tmp_path / "run", isolated_forking(stack_python)
    variables = environment(tmp_path, PYTHON_EXEC=str(python), TMPDIR=str(tmp_path))  # the first is torchrun's
    options = ["--launcher=torchrun", "--nodes=2", "--gpus=1", "--interface=lo"]
    plan = envdoctor(
        *train_arguments(python, run, *options, "--dry-run", "--format=json", max_steps=2), home=tmp_path
    )
    launch = json.loads(plan.stdout)["data"]["run"]["launch"]
    first = subprocess.Popen(
        [sys.executable, "-m", "envdoctor", *train_arguments(python, run, *options, max_steps=2)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables, cwd=tmp_path,
    )  # fmt: skip
    wait_for((run / "run.json").exists, "run.json", 120)
    (line,) = launch["other_nodes"]
    other = subprocess.run(shlex.split(line), capture_output=True, text=True, env=variables, timeout=300, check=False)
    output, errors = first.communicate(timeout=300)
    assert first.returncode == 0, output + errors
    assert other.returncode == 0, other.stderr
    assert line in errors
    assert not list(tmp_path.glob("torchelastic_*"))
    assert "export GLOO_SOCKET_IFNAME=lo" in other.stderr
    assert (read_result(run)["steps"], read_result(run)["ranks"]) == (2, 2)


@pytest.mark.early
def test_ranks_save_when_torchrun_receives_sigterm(stack_python: Path, tmp_path: Path) -> None:
    run, python = tmp_path / "run", isolated_forking(stack_python)
    log = tmp_path / "out"
    plan = envdoctor(
        *train_arguments(python, run, "--gpus=2", "--dry-run", "--format=json", max_steps=100_000),
        home=tmp_path,
    )
    planned = json.loads(plan.stdout)["data"]["run"]
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "sort", "settings": planned["settings"]}))
    variables = {variable["name"]: variable["value"] for variable in planned["launch"]["environment"]}
    with log.open("wb") as out:
        torchrun = subprocess.Popen(
            planned["command"], stdout=out, stderr=subprocess.STDOUT,
            env=environment(tmp_path, PYTHON_EXEC=str(python)) | variables,
        )  # fmt: skip
        wait_for(lambda: last_step(run) >= 3 or torchrun.poll() is not None, "third step", 300)
        torchrun.send_signal(signal.SIGTERM)
        torchrun.wait(300)
    last = read_events(run)[-1]
    assert last["event"] == "interrupted", log.read_text()
    assert (run / f"checkpoints/checkpoint-{last['step']}/complete.json").exists()
