"""Planned launches: commands, variables and job files; a fake sbatch for submission."""

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
from support.command import envdoctor, envelope, environment
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.launch_specs import CONTEXT, SFT, SPEC, VERL, context_with, job, job_text
from support.recorded_results import assert_as_recorded

from envdoctor.core.errors import BadInput
from envdoctor.training.launchers import commands
from envdoctor.training.launchers.context import parse_address
from envdoctor.training.launchers.environment import suggest_home
from envdoctor.training.launchers.plan import plan_launch
from envdoctor.training.launchers.records import (
    Allocation,
    Disk,
    JobOptions,
    Launch,
    LaunchContext,
    LaunchOptions,
    Partition,
    RunSpec,
)
from envdoctor.training.launchers.slurm import parse_partitions
from envdoctor.training.recipes import launch_size_assignments

GPU_NODES = (Partition("gpu", 8, 128), Partition("cpu", 0, 48))
TOKEN = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4xY7z"


@pytest.mark.parametrize(
    ("options", "launcher", "processes"),
    [
        (LaunchOptions(), "local", 1),
        (LaunchOptions(gpus=2), "torchrun", 2),
        (LaunchOptions("torchrun"), "torchrun", 8),  # all GPUs of the machine
        (LaunchOptions("accelerate"), "accelerate", 8),
        (LaunchOptions("torchrun", gpus=1), "torchrun", 1),
        (LaunchOptions(job=JobOptions(partition="gpu")), "slurm", 8),  # all GPUs of the partition's nodes
    ],
)
def test_default_launcher_and_processes(options: LaunchOptions, launcher: str, processes: int) -> None:
    launch = plan_launch(options, SPEC, context_with(partitions=GPU_NODES))
    assert (launch.launcher, launch.processes) == (launcher, processes)


@pytest.mark.parametrize(
    ("options", "spec", "context", "message", "hint"),
    [
        (LaunchOptions("mpi"), SPEC, CONTEXT, "unknown launcher 'mpi'", "--launcher"),
        (LaunchOptions("ray"), SPEC, CONTEXT, "sort is for the bundled trainer", "--launcher torchrun"),
        (LaunchOptions("torchrun"), VERL, CONTEXT, "verl, which starts its processes itself", "--launcher ray"),
        (LaunchOptions("local", gpus=2), SPEC, CONTEXT, "starts one process", "--launcher torchrun --gpus 2"),
        (
            LaunchOptions("local", nodes=2),
            SPEC,
            CONTEXT,
            "--launcher local --nodes 2",
            "--launcher torchrun --nodes 2",
        ),
        (
            LaunchOptions("accelerate", nodes=2),
            SPEC,
            CONTEXT,
            "--launcher accelerate --nodes 2",
            "--launcher torchrun",
        ),
        (LaunchOptions("ray", nodes=2), VERL, CONTEXT, "without RAY_ADDRESS", "export RAY_ADDRESS"),
        (LaunchOptions("torchrun", gpus=9), SPEC, CONTEXT, "--gpus 9: login1 has 8", "--gpus 8"),
        (
            LaunchOptions("torchrun", job=JobOptions(time="1")),
            SPEC,
            CONTEXT,
            "no options of a SLURM job",
            "--launcher slurm",
        ),
        (job(time="tomorrow"), SPEC, CONTEXT, "--time tomorrow", "--time 12:00:00"),
        (job(partition="a b"), SPEC, CONTEXT, "--partition 'a b'", "sinfo"),
        (
            job(partition="gpuu"),
            SPEC,
            context_with(partitions=GPU_NODES),
            "unknown partition 'gpuu'; did you mean 'gpu'?",
            "sinfo",
        ),
        (
            LaunchOptions("slurm", gpus=16),
            SPEC,
            context_with(partitions=GPU_NODES),
            "nodes of partition gpu have 8",
            "--gpus 8 --nodes N",
        ),
        (job(options=("a b",)), SPEC, CONTEXT, "--slurm-option a b", "man sbatch"),
        (job(options=(f"comment={TOKEN}",)), SPEC, CONTEXT, "contains a secret", "export HF_TOKEN"),
        (job(options=(f"job-name=x-{TOKEN}",)), SPEC, CONTEXT, "contains a secret", "export HF_TOKEN"),
        (job(options=("comment=password=hunter2hunter2",)), SPEC, CONTEXT, "contains a secret", "export HF_TOKEN"),
        (job(account=TOKEN), SPEC, CONTEXT, "contains a secret", "export HF_TOKEN"),
        (
            job(container=f"https://me:{TOKEN}@registry.example/x"),
            SPEC,
            CONTEXT,
            "contains a secret",
            "export HF_TOKEN",
        ),
        (job(options=("export=HF_TOKEN=hf_x",)), SPEC, CONTEXT, "contains a value", "export HF_TOKEN"),
        (LaunchOptions("ray"), SFT, CONTEXT, "which torchrun starts, not Ray", "--launcher slurm"),
        (LaunchOptions(nodes=2), SFT, CONTEXT, "--launcher local --nodes 2", "--launcher slurm --nodes 2"),
        (
            LaunchOptions("slurm", nodes=3),
            SPEC,
            context_with(allocation=Allocation("7", 2, "n1", 8)),
            "job 7 has 2",
            "--nodes 2",
        ),
        (
            job(time="1"),
            SPEC,
            context_with(allocation=Allocation("7", 2, "n1", 8)),
            "--time inside job 7",
            "--launcher slurm",
        ),
    ],
)
def test_unsupported_launches_are_rejected(
    options: LaunchOptions, spec: RunSpec, context: LaunchContext, message: str, hint: str
) -> None:
    with pytest.raises(BadInput) as refused:
        plan_launch(options, spec, context)
    assert message in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.expected


def lines_of(launch: Launch) -> dict[str, str]:
    return {variable.name: variable.line for variable in launch.environment}


def test_variables_have_reasons_and_user_values_are_kept() -> None:
    lines = lines_of(
        plan_launch(LaunchOptions("torchrun"), SPEC, context_with(environ={"ROCR_VISIBLE_DEVICES": "0"}))
    )
    assert lines["OMP_NUM_THREADS"].startswith("export OMP_NUM_THREADS=8  # 64 cores for 8 processes")
    assert lines["NCCL_SOCKET_IFNAME"] == "export NCCL_SOCKET_IFNAME==eth0  # the default route uses it"
    assert lines["ROCR_VISIBLE_DEVICES"].startswith("unset ROCR_VISIBLE_DEVICES  # ")
    assert lines["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"].startswith("export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120")
    own = {"OMP_NUM_THREADS": "3", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
    assert set(lines_of(plan_launch(LaunchOptions("torchrun"), SPEC, context_with(environ=own)))) == {
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    }
    assert lines_of(plan_launch(LaunchOptions(), SPEC, CONTEXT)) == {}  # one process needs no variables


def test_unset_variables_are_removed_by_the_command() -> None:
    launch = plan_launch(LaunchOptions(), SPEC, context_with(environ={"ROCR_VISIBLE_DEVICES": "0"}))
    assert launch.command[:4] == ("env", "-u", "ROCR_VISIBLE_DEVICES", "/env/bin/python")


def test_wandb_names_are_set_only_with_report_to_wandb() -> None:
    reporting = msgspec.structs.replace(SPEC, settings={"report_to": ["tensorboard", "wandb"]})
    lines = lines_of(plan_launch(LaunchOptions(), reporting, CONTEXT))
    assert lines["WANDB_NAME"] == "export WANDB_NAME=sort-1  # the run's directory"
    assert set(lines) == {"WANDB_NAME", "WANDB_PROJECT"}
    assert "WANDB_PROJECT" not in lines_of(
        plan_launch(LaunchOptions(), reporting, context_with(environ={"WANDB_PROJECT": "mine"}))
    )
    job = job_text(spec=reporting)
    assert "export WANDB_NAME=${WANDB_NAME:-sort-1} " in job
    spaced = msgspec.structs.replace(reporting, directory="/runs/my run's")
    exports = [line for line in job_text(spec=spaced).splitlines() if line.startswith("export WANDB_")]
    script = "\n".join([*exports, 'printf "%s\\n" "$WANDB_PROJECT" "$WANDB_NAME"'])
    for own, printed in (({}, ["envdoctor-sort", "my run's"]), ({"WANDB_PROJECT": "mine"}, ["mine", "my run's"])):
        done = subprocess.run(["bash", "-c", script], env=own, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == printed


def test_notes_list_kept_variables() -> None:
    context = context_with(infiniband=("ib0", "ib1"), environ={"CUDA_VISIBLE_DEVICES": "2,3"}, gpus=2)
    notes = plan_launch(LaunchOptions("torchrun"), SPEC, context).notes
    assert "CUDA_VISIBLE_DEVICES=2,3 is kept: set by you" in notes
    assert any(note.startswith("InfiniBand (ib0, ib1): NCCL finds it by itself") for note in notes)


def test_larger_disk_is_suggested_only_for_hub_models_and_a_small_home() -> None:
    hub = msgspec.structs.replace(SPEC, settings={"model": "Qwen/Qwen3-8B"})
    context = context_with(
        home=Disk("/home/me", 20 << 30), disks=(Disk("/scratch/me", 900 << 30), Disk("/data", 90 << 30))
    )
    (note,) = suggest_home(hub, context)
    assert note.endswith("export HF_HOME=/scratch/me/huggingface (/scratch/me has 900 GiB free)")
    assert "/home/me has 20 GiB free" in note
    for spec, other in (
        (SPEC, context),
        (msgspec.structs.replace(SPEC, settings={"model": "/models/qwen"}), context),
        (hub, context_with(home=Disk("/home/me", 500 << 30), disks=context.disks)),
        (hub, context_with(home=context.home, disks=(Disk("/data", 30 << 30),))),
        (hub, context_with(home=context.home, disks=context.disks, environ={"HF_HOME": "/x"})),
    ):
        assert suggest_home(spec, other) == []


def test_a_disk_twice_as_large_as_a_home_below_100_gib_is_suggested() -> None:
    hub = msgspec.structs.replace(SPEC, settings={"model": "Qwen/Qwen3-8B"})
    for home, disk, count in ((100 << 30, 900 << 30, 0), ((100 << 30) - 1, 900 << 30, 1), (40, 80, 1), (40, 79, 0)):
        context = context_with(home=Disk("/home/me", home), disks=(Disk("/data", disk),))
        assert len(suggest_home(hub, context)) == count, (home, disk)


def test_each_sbatch_line_has_a_reason() -> None:
    text = job_text(job(partition="gpu", time="1-12:00:00", nodelist="n[1-2]", account="me", options=("qos=high",)),
                    partitions=GPU_NODES)  # fmt: skip
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


def test_slurm_option_replaces_the_generated_option() -> None:
    text = job_text(job(options=("signal=USR1@300", "gres=gpu:h100:4", "exclusive")))
    assert text.count("--signal=") == text.count("--gres=") == 1
    assert "#SBATCH --signal=USR1@300" in text
    assert "\n#SBATCH --exclusive" in text


def test_cpus_in_proportion_to_gpus_and_partition_without_gpus() -> None:
    text = job_text(LaunchOptions("slurm", gpus=2), partitions=GPU_NODES)
    assert "#SBATCH --cpus-per-task=32 " in text
    assert "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK" in text  # srun does not take it from sbatch since 22.05
    text = job_text(LaunchOptions("slurm", gpus=2, job=JobOptions(partition="cpu")), partitions=GPU_NODES)
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


def test_job_file_is_valid_bash_for_any_directory_name(tmp_path: Path) -> None:
    folder = str(tmp_path / "my runs; 100 %")
    spec = msgspec.structs.replace(SPEC, directory=folder, program=("/tool/grpo.py", folder))
    text = job_text(spec=spec)
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert f"#SBATCH --output='{folder.replace('%', '%%')}/train.log'" in text


def test_parse_partitions_of_sinfo() -> None:
    text = "debug|(null)|2\nbig|gpu:h100:8(S:0-1)|128\nmixed*|gpu:a100:2(S:0),gpu:l4:4|64+\nodd\n"
    assert parse_partitions(text) == (
        Partition("mixed", 6, 64), Partition("debug", 0, 2), Partition("big", 8, 128), Partition("odd", 0, 0),
    )  # fmt: skip
    assert parse_partitions("") == ()


def test_parse_node_address_of_scontrol() -> None:
    text = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=1\n   NodeAddr=10.0.0.7 NodeHostName=vm Port=17001 Version=22.05.8\n"
    )
    assert parse_address(text) == "10.0.0.7"
    assert parse_address("Node n9 not found") == ""


def test_verl_sft_receives_the_node_rank() -> None:
    text = job_text(spec=SFT)
    assert "--ranked --processes=8 --several" in text
    assert "--signal=TERM@60" in text  # verl cannot save on the warning signal
    assert "latest_checkpointed_iteration.txt" in text
    assert "torch.distributed.run" not in text  # verl starts it
    assert "start=(/env/bin/python)" in text
    assert plan_launch(LaunchOptions("local", gpus=4), SFT, CONTEXT).command == ("/env/bin/python", *SFT.program)


def test_verl_on_several_nodes_starts_ray_on_all() -> None:
    text = job_text(spec=VERL)
    ray = f"start=(/env/bin/python -B {Path(VERL.node_program).with_name('ray_node.py')} "
    assert ray + '--head="$first" --port="$port" --address=NODE_ADDRESS --names="$names" --gpus=8 -- ' in text
    assert 'names=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)' in text
    assert "--ranked --processes=8 --several" in text
    assert "torch.distributed.run" not in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    inside = context_with(allocation=Allocation("4711", 3, "10.0.0.1", 4, ("n1", "n2", "n3")))
    launch = plan_launch(LaunchOptions("slurm", nodes=2), VERL, inside)
    assert "--nodelist=n1,n2" in launch.command
    assert {"--head=10.0.0.1", "--port=24711", "--names=n1,n2", "--gpus=4"} <= set(launch.command)
    assert launch.files == {"slurm-job": "4711 allocation\n"}
    alone = job_text(LaunchOptions("slurm", nodes=1, gpus=8), spec=VERL)
    assert "ray_node" not in alone  # verl's driver starts Ray itself


def test_nodes_and_gpus_become_settings_of_verl() -> None:
    assert launch_size_assignments(LaunchOptions(nodes=2, gpus=8), "verl", ["gpus=4"]) == ("nodes=2",)
    assert launch_size_assignments(LaunchOptions(nodes=2, gpus=8), "grpo", []) == ()


def test_inside_an_allocation_srun_starts_the_run() -> None:
    context = context_with(
        allocation=Allocation("4711", 2, "10.0.0.1", 4), environ={"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    )
    launch = plan_launch(LaunchOptions("slurm"), SPEC, context)
    assert (launch.nodes, launch.processes, launch.submits) == (2, 4, False)
    assert launch.command[:4] == ("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1")
    assert "--rdzv-endpoint=10.0.0.1:24711" in launch.command
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3 is kept: set by the allocation" in launch.notes


SET_UNRESOLVABLE_NAME = 'hostname unresolvable-name && exec "$@"'
INIT_PROCESS_GROUP = (
    "import os, torch.distributed as dist; dist.init_process_group('gloo')\n"
    "os.write(1, f'world size {dist.get_world_size()}\\n'.encode())"  # one write: both ranks write to one pipe
)


@pytest.mark.stack
def test_torchrun_works_where_the_host_name_does_not_resolve(stack_python: Path, tmp_path: Path) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-u", "true"], check=False).returncode:
        pytest.skip("setting the host name needs root")
    (tmp_path / "init.py").write_text(INIT_PROCESS_GROUP)
    spec = msgspec.structs.replace(SPEC, python=str(stack_python), program=(str(tmp_path / "init.py"),))
    done = subprocess.run(
        ["unshare", "-u", "sh", "-c", SET_UNRESOLVABLE_NAME, "sh", *commands.torchrun_one_node(spec, 1)],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "world size 1\n", done.stderr[-2000:]
    assert not list(tmp_path.glob("torchelastic_*"))


# The command line.


def dry_run(home: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    command = ["train", "sort", "--dry-run", "--python", sys.executable, "--format", "json", *arguments]
    data: dict[str, Any] = envelope(envdoctor(*command, home=home, **variables))
    return data


def test_default_is_all_gpus_of_the_machine(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake = fake_nvml(machine_ini("h100x8"))
    variables = {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
    launch = dry_run(tmp_path, "--launcher", "torchrun", **variables)["data"]["run"]["launch"]
    assert "--nproc-per-node=8" in launch["command"]
    launch = dry_run(tmp_path, "--launcher", "torchrun", CUDA_VISIBLE_DEVICES="4,6", **variables)["data"]["run"][
        "launch"
    ]
    assert "--nproc-per-node=2" in launch["command"]
    refused = dry_run(tmp_path, "--launcher", "torchrun", "--gpus", "9", **variables)
    assert "has 8 for this process" in refused["error"]["message"]


def test_unknown_interface_is_an_error_that_lists_the_interfaces(tmp_path: Path) -> None:
    for arguments, variables in ((["--interface", "nope0"], {}), ([], {"NCCL_SOCKET_IFNAME": "nope0"})):
        error = dry_run(tmp_path, "--gpus", "2", *arguments, **variables)["error"]
        assert "there is no interface nope0 on" in error["message"]
        assert "lo" in error["message"]


def test_dry_run_prints_the_job_file_unwrapped(tmp_path: Path) -> None:
    arguments = [
        "train",
        "sort",
        "--dry-run",
        "--python",
        "/env/bin/python",
        "--run",
        "r",
        "--nodes",
        "2",
        "--launcher",
    ]
    done = envdoctor(*arguments, "slurm", "--gpus", "1", "--time", "60", home=tmp_path, COLUMNS="40")
    text = done.stdout.partition("/job.sbatch\n")[2].partition("\n# ----\n")[0]
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    data = envelope(envdoctor(*arguments, "slurm", "--gpus", "1", "--time", "60", "--format", "json", home=tmp_path))
    assert text + "\n" == data["data"]["run"]["launch"]["files"]["job.sbatch"]
    assert list(tmp_path.iterdir()) == []


SBATCH = """#!/bin/bash
case $1 in
--test-only) cat > "$HOME/tested"; [ -z "$REFUSAL" ] || { echo "sbatch: error: $REFUSAL" >&2; exit 1; };;
--parsable) cp "$2" "$HOME/submitted"; echo "4711;cluster";;
esac
"""


def submit(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    tools = home / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text(SBATCH)
    (tools / "sbatch").chmod(0o755)
    path = f"{tools}:{environment(home)['PATH']}"
    command = ["train", "sort", "--launcher", "slurm", "--python", "/env/bin/python", "--unverified", "--run", "r"]
    return envdoctor(*command, "--gpus", "1", *arguments, home=home, PATH=path, HF_TOKEN="hf_secret", **variables)


def test_submitted_job_prints_the_watch_command(tmp_path: Path) -> None:
    done = submit(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "job 4711 submitted" in done.stdout
    assert f"envdoctor watch {tmp_path}/r" in done.stdout
    assert (tmp_path / "tested").read_bytes() == (tmp_path / "submitted").read_bytes()
    configuration = json.loads((tmp_path / "r/run.json").read_text())
    assert (configuration["launcher"], configuration["command"][0]) == ("slurm", "sbatch")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"hf_secret" in file.read_bytes()]


def test_rejected_job_leaves_no_files(tmp_path: Path) -> None:
    done = submit(tmp_path, REFUSAL="invalid account or qos specified")
    assert done.returncode == 2
    assert "SLURM rejects the job: invalid account or qos specified" in done.stderr
    assert not (tmp_path / "r").exists()


def test_without_slurm_the_hint_is_dry_run(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    arguments = ["train", "sort", "--launcher", "slurm", "--python", "/env/bin/python", "--unverified", "--run", "r"]
    done = envdoctor(*arguments, home=tmp_path, PATH=str(tools))
    assert done.returncode == 2
    assert "cannot start sbatch" in done.stderr
    assert "--dry-run" in done.stderr
    assert not (tmp_path / "r").exists()


def test_launches_are_as_recorded() -> None:
    inside = context_with(allocation=Allocation("7", 2, "n[1-2]", 8))
    ray = context_with(environ={"RAY_ADDRESS": "10.0.0.7:6379"})
    gpu = {"partition": "gpu"}
    cases = {
        "torchrun": (LaunchOptions("torchrun"), SPEC, CONTEXT),
        "one GPU": (LaunchOptions(gpus=1, nodes=1), SPEC, CONTEXT),
        "torchrun, two GPUs": (LaunchOptions(gpus=2), SPEC, CONTEXT),
        "accelerate": (LaunchOptions("accelerate", gpus=2), SPEC, CONTEXT),
        "accelerate, one GPU": (LaunchOptions("accelerate", gpus=1), SPEC, CONTEXT),
        "torchrun, two nodes": (LaunchOptions("torchrun", gpus=1, nodes=2), SPEC, inside),
        "verl, one node": (LaunchOptions(nodes=1), VERL, CONTEXT),
        "verl, two nodes": (LaunchOptions(nodes=2), VERL, ray),
        "verl on Ray": (LaunchOptions("ray", nodes=2), VERL, ray),
        "SLURM": (job(time="12:00:00", modules=("cuda/12.8",), **gpu), SPEC, context_with(partitions=GPU_NODES)),
        "SLURM, one GPU": (LaunchOptions("slurm", gpus=1, job=JobOptions(**gpu)), SPEC, CONTEXT),
        "SLURM, two nodes": (LaunchOptions("slurm", gpus=1, nodes=2, job=JobOptions(**gpu)), SPEC, CONTEXT),
        "SLURM, verl, two nodes": (LaunchOptions("slurm", nodes=2, job=JobOptions(**gpu)), VERL, CONTEXT),
        "SLURM, container": (job(container="stack.sif", options=("qos=high",)), SPEC, CONTEXT),
        "SLURM, allocation": (LaunchOptions("slurm"), SPEC, inside),
        "SLURM, verl": (job(**gpu), VERL, CONTEXT),
        "SLURM, verl SFT": (job(**gpu), SFT, CONTEXT),
    }
    assert_as_recorded("launches", {name: plan_launch(*each) for name, each in cases.items()})
