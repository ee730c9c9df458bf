"""A real SLURM of two nodes on this machine: warned, requeued, resumed; ended at the limit; in an allocation."""

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
from command import envdoctor, envelope, environment
from slurm_cluster import Cluster, wait_for

pytestmark = pytest.mark.stack
TINY = {
    "device": "cpu", "prompts_per_step": 4, "num_generations": 4, "hidden_size": 16, "intermediate_size": 16,
    "layers": 1, "heads": 2, "warmup_steps": 3, "eval_every": 0, "eval_samples": 1, "save_every": 0,
}  # fmt: skip


def words(python: Path, run: Path, *options: str, **settings: Any) -> list[str]:
    given = [f"--set={key}={value}" for key, value in (TINY | settings).items()]
    return [
        "train",
        "sort",
        "--launcher",
        "slurm",
        "--unverified",
        f"--python={python}",
        f"--run={run}",
        *given,
        *options,
    ]


def submit(cluster: Cluster, python: Path, run: Path, *options: str, **settings: Any) -> str:
    """Hand a run to SLURM; its job's number."""
    given = cluster.variables | {"HF_TOKEN": "hf_of_a_test"}
    done = envdoctor(*words(python, run, *options, **settings), home=run.parent, **given)
    assert done.returncode == 0, done.stderr
    found = re.search(r"job (\d+) submitted", done.stdout)
    assert found, done.stdout
    return found[1]


def events(run: Path) -> list[dict[str, Any]]:
    file = run / "events.jsonl"
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def steps(run: Path) -> int:
    return max((event["step"] for event in events(run) if event["event"] == "step"), default=0)


def watched(cluster: Cluster, run: Path) -> dict[str, Any]:
    done = envdoctor("watch", run, "--once", "--format", "json", home=run.parent, **cluster.variables)
    data: dict[str, Any] = envelope(done)["data"]
    return data


def test_warned_before_its_limit_a_job_is_requeued_and_resumed_and_another_is_ended_at_it(
    cluster: Cluster, stack_python: Path, tmp_path: Path
) -> None:
    """Both at once, since the shortest limit of SLURM is a minute."""
    run, limited = tmp_path / "run", tmp_path / "limited"
    warned = submit(cluster, stack_python, run, "--time=2", "--slurm-option=signal=USR1@60", steps=100_000)
    # 0 s before the end no warning comes: SIGTERM does, at the limit itself.
    ended = submit(cluster, stack_python, limited, "--time=1", "--slurm-option=signal=CONT@0", steps=100_000)
    wait_for(lambda: events(run) and events(run)[-1]["event"] == "interrupted", "warning", 120)
    stopped = int(events(run)[-1]["step"])
    assert (run / f"checkpoints/checkpoint-{stopped}/complete.json").exists()
    configuration = json.loads((run / "run.json").read_text())
    configuration["settings"]["steps"] = stopped + 20  # else it would be warned again and again
    (run / "run.json").write_text(json.dumps(configuration))
    # The same job goes on from there, by itself.
    wait_for(lambda: cluster.job(warned)["Restarts"] == "1", "requeue", 30)
    assert f"requeued to go on from {run}/checkpoints/checkpoint-{stopped}" in (run / "train.log").read_text()
    assert cluster.wait_for_end(warned, 90) == "COMPLETED", (run / "train.log").read_text()
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"], result["resumed_from"]) == ("done", stopped + 20, stopped)
    with (run / "metrics.csv").open(newline="") as table:
        assert [int(row["step"]) for row in csv.DictReader(table)] == list(range(1, stopped + 21))
    # The one at its limit saved, too, is told as what it is, and is not requeued.
    assert cluster.wait_for_end(ended, 90) == "TIMEOUT"
    wait_for(lambda: events(limited)[-1]["event"] == "interrupted", "interrupted event", 30)
    last = int(events(limited)[-1]["step"])
    assert (limited / f"checkpoints/checkpoint-{last}/complete.json").exists()
    seen = watched(cluster, limited)
    assert (seen["state"]["ending"], seen["job"]["state"]) == ("interrupted", "TIMEOUT")
    again = f"go on with: sbatch --time=0-00:02:00 {limited}/job.sbatch"
    told = f"SLURM ended job {ended} at its time limit of 00:01:00 (TIMEOUT); {again}"
    assert seen["state"]["notes"][-1] == told
    assert cluster.job(ended)["Restarts"] == "0"
    # Nothing secret in any file, though the job had it.
    files = [*run.iterdir(), *limited.iterdir()]
    assert not [file for file in files if file.is_file() and b"hf_of_a_test" in file.read_bytes()]


def test_a_killed_run_of_two_nodes_is_gone_and_not_requeued(
    cluster: Cluster, stack_python: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    number = submit(cluster, stack_python, run, "--nodes=2", "--time=10", steps=100_000)
    wait_for(lambda: steps(run) >= 3, "third step", 90)
    trainer = int((run / ".lock").read_text())
    variables = Path(f"/proc/{trainer}/environ").read_bytes().split(b"\0")
    assert b"HF_TOKEN=hf_of_a_test" in variables  # it travels by --export=ALL
    assert b"WORLD_SIZE=2" in variables
    assert any(variable.startswith(b"NCCL_SOCKET_IFNAME==") for variable in variables)
    os.kill(trainer, signal.SIGKILL)
    assert cluster.wait_for_end(number, 60) == "FAILED"
    assert cluster.job(number)["Restarts"] == "0"
    seen = watched(cluster, run)
    assert (seen["trainer"], seen["state"]["ending"]) == ("gone", "failed")
    assert f"SLURM's job {number} ended with" in seen["state"]["trouble"]["message"]
    assert "is gone without a word" in seen["state"]["trouble"]["message"]


def test_a_job_that_waits_says_why_and_one_that_was_cancelled_too(
    cluster: Cluster, stack_python: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    number = submit(cluster, stack_python, run, "--time=10", "--slurm-option=hold", steps=3)
    wait_for(lambda: cluster.job(number).get("Reason") == "JobHeldUser", "hold", 30)
    (note,) = watched(cluster, run)["state"]["notes"]
    waits = "it waits since its owner holds it (JobHeldUser)"
    assert note == f"SLURM's job {number} has not started: {waits}; scontrol release {number}"
    cluster.ask("scancel", number)
    assert cluster.wait_for_end(number, 30) == "CANCELLED"
    seen = watched(cluster, run)["state"]
    assert seen["ending"] == "failed"
    assert (
        f"SLURM ended job {number} when somebody cancelled it (CANCELLED), before its first"
        in (seen["trouble"]["message"])
    )
    assert seen["trouble"]["hint"] == f"sbatch {run}/job.sbatch"


def test_in_an_allocation_srun_starts_both_nodes(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "envdoctor", *words(stack_python, run, steps=3)]
    done = subprocess.run(
        ["salloc", "--nodes=2", "--ntasks-per-node=1", *command], capture_output=True, text=True, check=False,
        timeout=120, env=environment(tmp_path) | cluster.variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"], result["ranks"]) == ("done", 3, 2)
    assert json.loads((run / "run.json").read_text())["command"][0] == "srun"


def test_a_partition_that_is_not_there(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    given = words(stack_python, tmp_path / "run", "--partition=debugg")
    done = envdoctor(*given, home=tmp_path, **cluster.variables)
    assert done.returncode == 2
    assert "unknown partition 'debugg'; did you mean 'debug'?" in done.stderr
    refused = envdoctor(*words(stack_python, tmp_path / "run", "--nodes=3"), home=tmp_path, **cluster.variables)
    assert refused.returncode == 2
    assert "SLURM refuses the job" in refused.stderr
    assert not (tmp_path / "run").exists()
