"""Runs on a real SLURM of two nodes on this machine: requeue, resume, time limit, allocation."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope, environment
from support.slurm_cluster import Cluster, needs_slurm, wait_for
from support.slurm_runs import TINY_SETTINGS, last_step
from support.trainer_runs import read_events

pytestmark = [pytest.mark.stack, needs_slurm]


def train_arguments(python: Path, run: Path, *options: str, **settings: Any) -> list[str]:
    assignments = [f"--set={key}={value}" for key, value in (TINY_SETTINGS | settings).items()]
    return [
        "train",
        "sort",
        "--launcher",
        "slurm",
        "--unverified",
        f"--python={python}",
        f"--run={run}",
        *assignments,
        *options,
    ]


def submit(cluster: Cluster, python: Path, run: Path, *options: str, **settings: Any) -> str:
    """Submit a run to SLURM and return its job's number."""
    variables = cluster.variables | {"HF_TOKEN": "hf_of_a_test"}
    done = envdoctor(*train_arguments(python, run, *options, **settings), home=run.parent, **variables)
    assert done.returncode == 0, done.stderr
    found = re.search(r"job (\d+) submitted", done.stdout)
    assert found, done.stdout
    return found[1]


def watch_once(cluster: Cluster, run: Path) -> dict[str, Any]:
    done = envdoctor("watch", run, "--once", "--format", "json", home=run.parent, **cluster.variables)
    data: dict[str, Any] = envelope(done)["data"]
    return data


def test_job_with_warning_is_requeued_and_resumed_and_job_without_ends_at_its_limit(
    cluster: Cluster, stack_python: Path, tmp_path: Path
) -> None:
    """Both jobs run at the same time, since the shortest time limit of SLURM is a minute."""
    run, limited = tmp_path / "run", tmp_path / "limited"
    warned = submit(cluster, stack_python, run, "--time=2", "--slurm-option=signal=USR1@60", max_steps=100_000)
    # 0 s before the limit there is no warning signal; SLURM sends SIGTERM at the limit.
    ended = submit(cluster, stack_python, limited, "--time=1", "--slurm-option=signal=CONT@0", max_steps=100_000)
    wait_for(lambda: read_events(run) and read_events(run)[-1]["event"] == "interrupted", "warning", 120)
    stopped = int(read_events(run)[-1]["step"])
    assert (run / f"checkpoints/checkpoint-{stopped}/complete.json").exists()
    configuration = json.loads((run / "run.json").read_text())
    configuration["settings"]["max_steps"] = stopped + 20  # otherwise the job would be requeued repeatedly
    (run / "run.json").write_text(json.dumps(configuration))
    # SLURM restarts the same job, which resumes.
    wait_for(lambda: cluster.job(warned)["Restarts"] == "1", "requeue", 30)
    assert f"requeued to resume from {run}/checkpoints/checkpoint-{stopped}" in (run / "train.log").read_text()
    assert cluster.wait_for_end(warned, 90) == "COMPLETED", (run / "train.log").read_text()
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"], result["resumed_from"]) == ("done", stopped + 20, stopped)
    with (run / "metrics.csv").open(newline="") as table:
        assert [int(row["step"]) for row in csv.DictReader(table)] == list(range(1, stopped + 21))
    # The job that ended at its limit saved as well, is reported as interrupted, and is not requeued.
    assert cluster.wait_for_end(ended, 90) == "TIMEOUT"
    wait_for(lambda: read_events(limited)[-1]["event"] == "interrupted", "interrupted event", 30)
    last = int(read_events(limited)[-1]["step"])
    assert (limited / f"checkpoints/checkpoint-{last}/complete.json").exists()
    watched = watch_once(cluster, limited)
    assert (watched["state"]["ending"], watched["job"]["state"]) == ("interrupted", "TIMEOUT")
    resume = f"resume with: sbatch --time=0-00:02:00 {limited}/job.sbatch"
    note = f"SLURM ended job {ended} at its time limit of 00:01:00 (TIMEOUT); {resume}"
    assert watched["state"]["notes"][-1] == note
    assert cluster.job(ended)["Restarts"] == "0"
    # The job had the token, and no file contains it.
    files = [*run.iterdir(), *limited.iterdir()]
    assert not [file for file in files if file.is_file() and b"hf_of_a_test" in file.read_bytes()]


def test_killed_run_of_two_nodes_is_not_requeued(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    number = submit(cluster, stack_python, run, "--nodes=2", "--time=10", max_steps=100_000)
    wait_for(lambda: last_step(run) >= 3, "third step", 90)
    trainer = int((run / ".lock").read_text())
    variables = Path(f"/proc/{trainer}/environ").read_bytes().split(b"\0")
    assert b"HF_TOKEN=hf_of_a_test" in variables  # passed on by --export=ALL
    assert b"WORLD_SIZE=2" in variables
    assert any(variable.startswith(b"NCCL_SOCKET_IFNAME==") for variable in variables)
    os.kill(trainer, signal.SIGKILL)
    assert cluster.wait_for_end(number, 60) == "FAILED"
    assert cluster.job(number)["Restarts"] == "0"
    watched = watch_once(cluster, run)
    assert (watched["trainer"], watched["state"]["ending"]) == ("gone", "failed")
    assert f"SLURM's job {number} ended with" in watched["state"]["error"]["message"]
    assert "ended without an event" in watched["state"]["error"]["message"]


def test_pending_and_cancelled_jobs_are_explained(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    number = submit(cluster, stack_python, run, "--time=10", "--slurm-option=hold", max_steps=3)
    wait_for(lambda: cluster.job(number).get("Reason") == "JobHeldUser", "hold", 30)
    (note,) = watch_once(cluster, run)["state"]["notes"]
    waits = "it waits since its owner holds it (JobHeldUser)"
    assert note == f"SLURM's job {number} has not started: {waits}; scontrol release {number}"
    cluster.run_command("scancel", number)
    assert cluster.wait_for_end(number, 30) == "CANCELLED"
    watched = watch_once(cluster, run)["state"]
    assert watched["ending"] == "failed"
    assert (
        f"SLURM ended job {number} when a user cancelled it (CANCELLED), before its first"
        in (watched["error"]["message"])
    )
    assert watched["error"]["hint"] == f"sbatch {run}/job.sbatch"


def test_inside_an_allocation_srun_starts_both_nodes(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "envdoctor", *train_arguments(stack_python, run, max_steps=3)]
    done = subprocess.run(
        ["salloc", "--nodes=2", "--ntasks-per-node=1", *command], capture_output=True, text=True, check=False,
        timeout=120, env=environment(tmp_path) | cluster.variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"], result["ranks"]) == ("done", 3, 2)
    assert json.loads((run / "run.json").read_text())["command"][0] == "srun"


def test_unknown_partition(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    arguments = train_arguments(stack_python, tmp_path / "run", "--partition=debugg")
    done = envdoctor(*arguments, home=tmp_path, **cluster.variables)
    assert done.returncode == 2
    assert "unknown partition 'debugg'; did you mean 'debug'?" in done.stderr
    refused = envdoctor(
        *train_arguments(stack_python, tmp_path / "run", "--nodes=3"), home=tmp_path, **cluster.variables
    )
    assert refused.returncode == 2
    assert "SLURM rejects the job" in refused.stderr
    assert not (tmp_path / "run").exists()
