"""Launchers: what would run, exactly; sbatch as a program of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import envdoctor, envelope, environment
from fakenvml.fixture import FakeNvml, machine_ini

from envdoctor.core.errors import BadInput
from envdoctor.training.handoff import size_assignments
from envdoctor.training.launchers import commands
from envdoctor.training.launchers.environment import suggest_home
from envdoctor.training.launchers.plan import plan_launch
from envdoctor.training.launchers.records import Allocation, Ask, Disk, JobOptions, Launch, NodeKind, Situation, Work
from envdoctor.training.launchers.situation import parse_address
from envdoctor.training.launchers.slurm import parse_kinds

PLACE = Situation(
    host="login1", address="10.0.0.7", interface="eth0", interface_reason="the default route leads over it",
    infiniband=(), cores=64, gpus=8, environ={}, limits=("ulimit -n 65536  # was 1024; sockets",),
)  # fmt: skip
WORK = Work(
    directory="/runs/sort-1", recipe="sort", engine="grpo", settings={"device": "auto"}, python="/env/bin/python",
    program=("/tool/train/grpo.py", "/runs/sort-1"), node_program="/tool/node.py", folders=("/runs/sort-1", "/env"),
)  # fmt: skip
VERL = msgspec.structs.replace(WORK, engine="verl", program=("/tool/train/verl_run.py", "/runs/sort-1"))
GPU_NODES = (NodeKind("gpu", 8, 128), NodeKind("cpu", 0, 48))

SFT = msgspec.structs.replace(VERL, settings={"task": "sft", "nodes": 1})


def at(**changes: Any) -> Situation:
    return msgspec.structs.replace(PLACE, **changes)


def job(**options: Any) -> Ask:
    return Ask("slurm", nodes=2, gpus=8, job=JobOptions(**options))


def job_text(ask: Ask | None = None, work: Work = WORK, **changes: Any) -> str:
    return plan_launch(ask or job(), work, at(**changes)).files["job.sbatch"]


@pytest.mark.parametrize(
    ("ask", "launcher", "processes"),
    [
        (Ask(), "local", 1),
        (Ask(gpus=2), "torchrun", 2),
        (Ask("torchrun"), "torchrun", 8),  # all GPUs of the machine
        (Ask("accelerate"), "accelerate", 8),
        (Ask("torchrun", gpus=1), "torchrun", 1),
        (Ask(job=JobOptions(partition="gpu")), "slurm", 8),  # all GPUs of the partition's nodes
    ],
)
def test_launcher_and_processes_where_they_are_not_said(ask: Ask, launcher: str, processes: int) -> None:
    launch = plan_launch(ask, WORK, at(kinds=GPU_NODES))
    assert (launch.launcher, launch.processes) == (launcher, processes)


@pytest.mark.parametrize(
    ("ask", "work", "place", "seen", "hint"),
    [
        (Ask("mpi"), WORK, PLACE, "unknown launcher 'mpi'", "--launcher"),
        (Ask("ray"), WORK, PLACE, "sort is for the bundled trainer", "--launcher torchrun"),
        (Ask("torchrun"), VERL, PLACE, "verl, which starts its processes itself", "--launcher ray"),
        (Ask("local", gpus=2), WORK, PLACE, "starts one process", "--launcher torchrun --gpus 2"),
        (Ask("local", nodes=2), WORK, PLACE, "--launcher local --nodes 2", "--launcher torchrun --nodes 2"),
        (Ask("accelerate", nodes=2), WORK, PLACE, "--launcher accelerate --nodes 2", "--launcher torchrun"),
        (Ask("ray", nodes=2), VERL, PLACE, "without RAY_ADDRESS", "export RAY_ADDRESS"),
        (Ask("torchrun", gpus=9), WORK, PLACE, "--gpus 9: login1 has 8", "--gpus 8"),
        (Ask("torchrun", job=JobOptions(time="1")), WORK, PLACE, "no options of a SLURM job", "--launcher slurm"),
        (job(time="tomorrow"), WORK, PLACE, "--time tomorrow", "--time 12:00:00"),
        (job(partition="a b"), WORK, PLACE, "--partition 'a b'", "sinfo"),
        (job(partition="gpuu"), WORK, at(kinds=GPU_NODES), "unknown partition 'gpuu'; did you mean 'gpu'?", "sinfo"),
        (Ask("slurm", gpus=16), WORK, at(kinds=GPU_NODES), "nodes of partition gpu have 8", "--gpus 8 --nodes N"),
        (job(options=("a b",)), WORK, PLACE, "--slurm-option a b", "man sbatch"),
        (job(options=("export=HF_TOKEN=hf_x",)), WORK, PLACE, "holds a value", "export HF_TOKEN"),
        (Ask("ray"), SFT, PLACE, "which torchrun starts and not Ray", "--launcher slurm"),
        (Ask(nodes=2), SFT, PLACE, "--launcher local --nodes 2", "--launcher slurm --nodes 2"),
        (Ask("slurm", 3), WORK, at(allocation=Allocation("7", 2, "n1", 8)), "job 7 has 2", "--nodes 2"),
        (job(time="1"), WORK, at(allocation=Allocation("7", 2, "n1", 8)), "--time inside job 7", "--launcher slurm"),
    ],
)
def test_what_a_launcher_cannot_do_is_refused(ask: Ask, work: Work, place: Situation, seen: str, hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        plan_launch(ask, work, place)
    assert seen in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.expected


def lines_of(launch: Launch) -> dict[str, str]:
    return {each.name: each.line for each in launch.environment}


def test_variables_have_reasons_and_the_users_own_stay() -> None:
    lines = lines_of(plan_launch(Ask("torchrun"), WORK, at(environ={"ROCR_VISIBLE_DEVICES": "0"})))
    assert lines["OMP_NUM_THREADS"].startswith("export OMP_NUM_THREADS=8  # 64 cores for 8 processes")
    assert lines["NCCL_SOCKET_IFNAME"] == "export NCCL_SOCKET_IFNAME==eth0  # the default route leads over it"
    assert lines["ROCR_VISIBLE_DEVICES"].startswith("unset ROCR_VISIBLE_DEVICES  # ")
    assert lines["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"].startswith("export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120")
    own = {"OMP_NUM_THREADS": "3", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
    assert set(lines_of(plan_launch(Ask("torchrun"), WORK, at(environ=own)))) == {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT"}
    assert lines_of(plan_launch(Ask(), WORK, PLACE)) == {}  # one process needs nothing of it


def test_what_is_unset_is_taken_from_the_command() -> None:
    launch = plan_launch(Ask(), WORK, at(environ={"ROCR_VISIBLE_DEVICES": "0"}))
    assert launch.command[:4] == ("env", "-u", "ROCR_VISIBLE_DEVICES", "/env/bin/python")


def test_names_for_wandb_only_where_the_run_reports_to_it() -> None:
    reporting = msgspec.structs.replace(WORK, settings={"report_to": ["tensorboard", "wandb"]})
    lines = lines_of(plan_launch(Ask(), reporting, PLACE))
    assert lines["WANDB_NAME"] == "export WANDB_NAME=sort-1  # the run's folder"
    assert set(lines) == {"WANDB_NAME", "WANDB_PROJECT"}
    assert "WANDB_PROJECT" not in lines_of(plan_launch(Ask(), reporting, at(environ={"WANDB_PROJECT": "mine"})))
    assert "export WANDB_NAME=sort-1" in job_text(work=reporting)


def test_notes_say_what_is_left_alone() -> None:
    place = at(infiniband=("ib0", "ib1"), environ={"CUDA_VISIBLE_DEVICES": "2,3"}, gpus=2)
    notes = plan_launch(Ask("torchrun"), WORK, place).notes
    assert "CUDA_VISIBLE_DEVICES=2,3 is kept: yours" in notes
    assert any(note.startswith("InfiniBand (ib0, ib1): NCCL finds it by itself") for note in notes)


def test_a_big_disk_is_suggested_only_where_the_home_is_small_and_the_hub_is_asked() -> None:
    hub = msgspec.structs.replace(WORK, settings={"model": "Qwen/Qwen3-8B"})
    place = at(home=Disk("/home/me", 20 << 30), disks=(Disk("/scratch/me", 900 << 30), Disk("/data", 90 << 30)))
    (note,) = suggest_home(hub, place)
    assert note.endswith("export HF_HOME=/scratch/me/huggingface (/scratch/me has 900 GiB free)")
    assert "/home/me has 20 GiB free" in note
    for work, other in (
        (WORK, place),
        (msgspec.structs.replace(WORK, settings={"model": "/models/qwen"}), place),
        (hub, at(home=Disk("/home/me", 500 << 30), disks=place.disks)),
        (hub, at(home=place.home, disks=(Disk("/data", 30 << 30),))),
        (hub, at(home=place.home, disks=place.disks, environ={"HF_HOME": "/x"})),
    ):
        assert suggest_home(work, other) == []


def test_every_line_of_a_jobs_head_has_its_reason() -> None:
    text = job_text(job(partition="gpu", time="1-12:00:00", nodelist="n[1-2]", account="me", options=("qos=high",)),
                    kinds=GPU_NODES)  # fmt: skip
    head = text.split("\n\n")[0].splitlines()
    options = {}
    for above, line in pairwise(head):
        if line.startswith("#SBATCH"):
            option, _, reason = line.partition("  # ")
            assert reason or above.startswith("# "), line
            key, _, value = option.split()[1].removeprefix("--").partition("=")
            options[key] = value
    assert options == {
        "job-name": "sort-1", "partition": "gpu", "account": "me", "time": "1-12:00:00", "nodes": "2",
        "nodelist": "n[1-2]", "ntasks-per-node": "1", "gres": "gpu:8", "cpus-per-task": "128",
        "output": "/runs/sort-1/train.log", "open-mode": "append", "signal": "USR1@120", "requeue": "",
        "export": "ALL", "qos": "high",
    }  # fmt: skip
    assert all("  # " in line for line in text.splitlines() if line.startswith("export "))


def test_an_option_of_ones_own_takes_the_place_of_ours() -> None:
    text = job_text(job(options=("signal=USR1@300", "gres=gpu:h100:4", "exclusive")))
    assert text.count("--signal=") == text.count("--gres=") == 1
    assert "#SBATCH --signal=USR1@300" in text
    assert "\n#SBATCH --exclusive" in text


def test_a_jobs_share_of_cpus_and_a_partition_without_gpus() -> None:
    text = job_text(Ask("slurm", gpus=2), kinds=GPU_NODES)
    assert "#SBATCH --cpus-per-task=32 " in text
    assert "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK" in text  # srun does not take it from sbatch since 22.05
    text = job_text(Ask("slurm", gpus=2, job=JobOptions(partition="cpu")), kinds=GPU_NODES)
    assert "--gres" not in text
    assert "--processes=2" in text


@pytest.mark.parametrize(
    ("image", "start"),
    [
        ("me#torch:1", "'--container-image=me#torch:1' --container-mounts=/runs/sort-1:/runs/sort-1,/env:/env "),
        ("/images/torch.sif", "apptainer exec --nv --bind /runs/sort-1,/env /images/torch.sif "),
    ],
)  # fmt: skip
def test_containers_and_modules(image: str, start: str) -> None:
    text = job_text(job(container=image, modules=("nccl", "hpcx")))
    assert f"\nsrun --wait=600 {start}" in text
    assert text.startswith("#!/bin/bash -l\n")  # a login shell has the function `module`
    assert text.index("module load nccl") < text.index("module load hpcx") < text.index("srun")


def test_a_jobs_file_is_a_script_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = str(tmp_path / "my runs; 100 %")
    work = msgspec.structs.replace(WORK, directory=folder, program=("/tool/grpo.py", folder))
    text = job_text(work=work)
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert f"#SBATCH --output='{folder.replace('%', '%%')}/train.log'" in text


def test_partitions_as_sinfo_prints_them() -> None:
    text = "debug|(null)|2\nbig|gpu:h100:8(S:0-1)|128\nmixed*|gpu:a100:2(S:0),gpu:l4:4|64+\nodd\n"
    assert parse_kinds(text) == (
        NodeKind("mixed", 6, 64), NodeKind("debug", 0, 2), NodeKind("big", 8, 128), NodeKind("odd", 0, 0),
    )  # fmt: skip
    assert parse_kinds("") == ()


def test_a_nodes_address_as_scontrol_prints_it() -> None:
    text = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=1\n   NodeAddr=10.0.0.7 NodeHostName=vm Port=17001 Version=22.05.8\n"
    )
    assert parse_address(text) == "10.0.0.7"
    assert parse_address("Node n9 not found") == ""


def test_verls_supervised_trainer_is_told_which_node_it_is_on() -> None:
    text = job_text(work=SFT)
    assert "--ranked --processes=8 --several" in text
    assert "--signal=TERM@60" in text  # it cannot save at a warning
    assert "latest_checkpointed_iteration.txt" in text
    assert "torch.distributed.run" not in text  # verl starts it
    assert "start=(/env/bin/python)" in text
    assert plan_launch(Ask("local", gpus=4), SFT, PLACE).command == ("/env/bin/python", *SFT.program)


def test_verl_on_several_nodes_has_a_ray_of_them_all() -> None:
    text = job_text(work=VERL)
    ray = f"start=(/env/bin/python -B {Path(VERL.node_program).with_name('ray_node.py')} "
    assert ray + '--head="$first" --port="$port" --address=NODE_ADDRESS --names="$names" --gpus=8 -- ' in text
    assert 'names=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)' in text
    assert "--ranked --processes=8 --several" in text
    assert "torch.distributed.run" not in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    inside = at(allocation=Allocation("4711", 3, "10.0.0.1", 4, ("n1", "n2", "n3")))
    launch = plan_launch(Ask("slurm", nodes=2), VERL, inside)
    assert "--nodelist=n1,n2" in launch.command
    assert {"--head=10.0.0.1", "--port=24711", "--names=n1,n2", "--gpus=4"} <= set(launch.command)
    assert launch.files == {"slurm-job": "4711 allocation\n"}
    alone = job_text(Ask("slurm", nodes=1, gpus=8), work=VERL)
    assert "ray_node" not in alone  # the driver starts its own


def test_nodes_and_gpus_are_verls_settings() -> None:
    assert size_assignments(Ask(nodes=2, gpus=8), "verl", ["gpus=4"]) == ("nodes=2",)
    assert size_assignments(Ask(nodes=2, gpus=8), "grpo", []) == ()


def test_in_an_allocation_srun_starts_it() -> None:
    place = at(allocation=Allocation("4711", 2, "10.0.0.1", 4), environ={"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    launch = plan_launch(Ask("slurm"), WORK, place)
    assert (launch.nodes, launch.processes, launch.submits) == (2, 4, False)
    assert launch.command[:4] == ("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1")
    assert "--rdzv-endpoint=10.0.0.1:24711" in launch.command
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3 is kept: the allocation's GPUs" in launch.notes


NAMELESS = 'hostname nobody-knows-it && exec "$@"'
MEET = "import os, torch.distributed as dist; dist.init_process_group('gloo'); print('met', dist.get_world_size())"


@pytest.mark.stack
def test_processes_of_a_machine_whose_name_does_not_resolve_find_each_other(
    stack_python: Path, tmp_path: Path
) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-u", "true"], check=False).returncode:
        pytest.skip("a name of its own needs root")
    (tmp_path / "meet.py").write_text(MEET)
    work = msgspec.structs.replace(WORK, python=str(stack_python), program=(str(tmp_path / "meet.py"),))
    done = subprocess.run(
        ["unshare", "-u", "sh", "-c", NAMELESS, "sh", *commands.torchrun_here(work, 2)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "met 2\n" * 2, done.stderr[-2000:]


# The command line.


def dry(home: Path, *words: str, **variables: str) -> dict[str, Any]:
    given = ["train", "sort", "--dry-run", "--python", sys.executable, "--format", "json", *words]
    data: dict[str, Any] = envelope(envdoctor(*given, home=home, **variables))
    return data


def test_gpus_of_the_machine_where_none_are_said(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake = fake_nvml(machine_ini("h100x8"))
    given = {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
    launch = dry(tmp_path, "--launcher", "torchrun", **given)["data"]["run"]["launch"]
    assert "--nproc-per-node=8" in launch["command"]
    launch = dry(tmp_path, "--launcher", "torchrun", CUDA_VISIBLE_DEVICES="4,6", **given)["data"]["run"]["launch"]
    assert "--nproc-per-node=2" in launch["command"]
    refused = dry(tmp_path, "--launcher", "torchrun", "--gpus", "9", **given)
    assert "has 8 for this process" in refused["error"]["message"]


def test_an_unknown_interface_is_refused_here_with_those_that_exist(tmp_path: Path) -> None:
    for words, given in ((["--interface", "nope0"], {}), ([], {"NCCL_SOCKET_IFNAME": "nope0"})):
        error = dry(tmp_path, "--gpus", "2", *words, **given)["error"]
        assert "there is no interface nope0 on" in error["message"]
        assert "lo" in error["message"]


def test_a_dry_run_prints_lines_that_can_be_copied(tmp_path: Path) -> None:
    words = ["train", "sort", "--dry-run", "--python", "/env/bin/python", "--run", "r", "--nodes", "2", "--launcher"]
    done = envdoctor(*words, "slurm", "--gpus", "1", "--time", "60", home=tmp_path, COLUMNS="40")
    text = done.stdout.partition("/job.sbatch\n")[2].partition("\n# ----\n")[0]
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    data = envelope(envdoctor(*words, "slurm", "--gpus", "1", "--time", "60", "--format", "json", home=tmp_path))
    assert text + "\n" == data["data"]["run"]["launch"]["files"]["job.sbatch"]
    assert list(tmp_path.iterdir()) == []


SBATCH = """#!/bin/bash
case $1 in
--test-only) cat > "$HOME/tested"; [ -z "$REFUSAL" ] || { echo "sbatch: error: $REFUSAL" >&2; exit 1; };;
--parsable) cp "$2" "$HOME/submitted"; echo "4711;cluster";;
esac
"""


def submit(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    tools = home / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text(SBATCH)
    (tools / "sbatch").chmod(0o755)
    path = f"{tools}:{environment(home)['PATH']}"
    given = ["train", "sort", "--launcher", "slurm", "--python", "/env/bin/python", "--unverified", "--run", "r"]
    return envdoctor(*given, "--gpus", "1", *words, home=home, PATH=path, HF_TOKEN="hf_secret", **variables)


def test_a_job_is_submitted_and_how_to_watch_it_told(tmp_path: Path) -> None:
    done = submit(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "job 4711 submitted" in done.stdout
    assert f"envdoctor watch {tmp_path}/r" in done.stdout
    assert (tmp_path / "tested").read_bytes() == (tmp_path / "submitted").read_bytes()
    configuration = json.loads((tmp_path / "r/run.json").read_text())
    assert (configuration["launcher"], configuration["command"][0]) == ("slurm", "sbatch")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"hf_secret" in file.read_bytes()]


def test_a_job_that_slurm_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    done = submit(tmp_path, REFUSAL="invalid account or qos specified")
    assert done.returncode == 2
    assert "SLURM refuses the job: invalid account or qos specified" in done.stderr
    assert not (tmp_path / "r").exists()


def test_without_slurm_the_file_can_still_be_seen(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    words = ["train", "sort", "--launcher", "slurm", "--python", "/env/bin/python", "--unverified", "--run", "r"]
    done = envdoctor(*words, home=tmp_path, PATH=str(tools))
    assert done.returncode == 2
    assert "cannot start sbatch" in done.stderr
    assert "--dry-run" in done.stderr
    assert not (tmp_path / "r").exists()
