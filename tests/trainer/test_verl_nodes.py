"""verl on a Ray of several nodes: SLURM nodes on this machine, each with its own raylet."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from support.command import envdoctor
from support.paths import ROOT
from support.slurm_cluster import Cluster, free_ports, needs_slurm, wait_for
from support.verl_formats import needs_verl
from support.verl_on_cpu import make_model, write_rows

pytestmark = [pytest.mark.stack, needs_verl]
PROGRAM = ROOT / "envdoctor/training/launchers/ray_node.py"
VERL = os.environ.get("ENVDOCTOR_VERL_PYTHON", "")
LIMITED = {"RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION": "0.02", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

# Like a trainer: join the Ray of RAY_ADDRESS, and run a task on every node.
ON_EVERY_NODE = """
import os, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
where = lambda: (ray.get_runtime_context().get_node_id(), os.environ.get("SLURMD_NODENAME", ""))
found = []
for node in ray.nodes():
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    done = ray.get(ray.remote(where).options(scheduling_strategy=there, num_cpus=1).remote())
    assert done[0] == node["NodeID"]
    found.append(f'{node["NodeName"]}={done[1]}')
print("RAN ON " + " ".join(sorted(found)), flush=True)
"""


def processes(word: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if word in line]


def start_head(folder: Path, port: int, names: str, wait: float, code: str) -> subprocess.Popen[str]:
    """Start the program of the head node, n1."""
    (folder / "trainer.py").write_text(code)
    argv = [VERL, "-B", str(PROGRAM), "--head=127.0.0.1", f"--port={port}", "--address=127.0.0.1",
            f"--names={names}", f"--wait={wait}", "--", VERL, str(folder / "trainer.py")]  # fmt: skip
    return subprocess.Popen(
        argv, env=os.environ | LIMITED | {"SLURMD_NODENAME": "n1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_missing_node_is_reported_and_the_trainer_is_not_started(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    child = start_head(tmp_path, port, "n1,n2,n3", 60, "print('STARTED')")
    output, _ = child.communicate(timeout=200)
    assert child.returncode == 1, output
    assert "n2,n3 did not join Ray within 60 s (1 of 3 nodes did)" in output
    assert "STARTED" not in output
    assert processes(f"--port={port}") == []


def test_a_signal_ends_the_trainer_and_ray(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    code = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(130))\nprint('UP', flush=True)\n"
    child = start_head(tmp_path, port, "n1", 120, code + "time.sleep(300)\n")
    assert child.stdout
    for line in child.stdout:
        if line.startswith("UP"):
            break
    child.terminate()
    output, _ = child.communicate(timeout=90)
    assert child.returncode == 130, output
    assert processes(f"--port={port}") == []


def test_a_failed_head_is_started_again(tmp_path: Path) -> None:
    with socket.socket() as occupied:  # the port of the head
        occupied.bind(("127.0.0.1", 0))
        child = start_head(tmp_path, occupied.getsockname()[1], "n1", 200, "print('STARTED')")
        assert child.stderr is None
        assert child.stdout
        for line in child.stdout:
            if "retrying" in line:
                break
    output, _ = child.communicate(timeout=200)
    assert child.returncode == 0, output
    assert line.startswith("Ray's head ended on n1 with exit status 1: retrying")
    assert "n1: Ray has all 1 nodes after" in output
    assert "STARTED" in output


@needs_slurm
def test_a_task_runs_on_each_slurm_node(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(ON_EVERY_NODE)
    (port,) = free_ports(1)
    done = subprocess.run(
        ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--wait=60", VERL, "-B", str(PROGRAM),
         "--head=127.0.0.1", f"--port={port}", "--address=127.0.0.1", "--names=n1,n2", "--", VERL,
         str(tmp_path / "trainer.py")],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | cluster.variables | LIMITED,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "RAN ON n1=n1 n2=n2" in done.stdout
    assert "Ray has all 2 nodes after" in done.stderr
    assert processes(f"--port={port}") == []
    assert processes(f"--address=127.0.0.1:{port}") == []


@needs_slurm
def test_verl_starts_on_the_ray_of_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """Without GPUs the trainer fails when it counts them on Ray's nodes."""
    model, rows = make_model(tmp_path / "model"), write_rows(tmp_path / "rows.jsonl", range(40))
    run = tmp_path / "run"
    settings = {
        "model": model, "data": rows, "held_out": "share=0.2", "prompts_per_step": 4,
        "mini_batch": 4, "per_device_train_batch_size": 1, "num_generations": 2, "gpus": 1,
        "options": "trainer.device=cpu",
        "max_prompt_length": 256, "sharding": "fsdp2", "dtype": "float32",
    }  # fmt: skip
    words = [f"--set={name}={value}" for name, value in settings.items()]
    command = [
        "train",
        "verl-grpo",
        "--launcher",
        "slurm",
        "--nodes=2",
        "--time=10",
        "--unverified",
        f"--python={VERL}",
    ]
    # The job inherits PYTHONWARNINGS, and Ray's agents fail if warnings are errors.
    done = envdoctor(
        *command, f"--run={run}", *words, home=tmp_path, **cluster.variables, **LIMITED, PYTHONWARNINGS=""
    )
    assert done.returncode == 0, done.stderr
    number = done.stdout.partition("job ")[2].split()[0]
    state = cluster.wait_for_end(number, 300)
    log = (run / "train.log").read_text()
    assert state == "FAILED", log[-3000:]
    assert "n1: Ray has all 2 nodes after" in log
    assert "Total available GPUs 0 is less than total desired GPUs 2" in log
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert "Total available GPUs 0" in events[-1]["message"]
    wait_for(lambda: not processes("--node-name=n2"), "end of n2's Ray", 60)
    watched = envdoctor("watch", run, "--once", home=tmp_path, **cluster.variables)
    assert f"SLURM's job {number} ended with exit code 1 (FAILED" in watched.stdout
