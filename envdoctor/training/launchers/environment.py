"""Environment variables of a run, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

from envdoctor.training.launchers.node import network_variables
from envdoctor.training.launchers.records import Disk, Situation, Variable, Work

SAVE_SECONDS = 120  # between a warning and the end: the running step, and a checkpoint
GIB = 1 << 30
SMALL_HOME = 100 * GIB  # a model of 20 billion parameters in 16 bits and its download are 80 GiB

# Slurm sets ROCR_VISIBLE_DEVICES beside CUDA_VISIBLE_DEVICES (gres.conf: without flags nvidia_gpu_env and amd_gpu_env
# both hold). Ray from 2.45 and verl refuse the two together: "Please don't set ROCR_VISIBLE_DEVICES when
# HIP/CUDA_VISIBLE_DEVICES is set" (verl/single_controller/base/worker.py).
ROCR = Variable(
    "ROCR_VISIBLE_DEVICES",
    None,
    "AMD's list of GPUs, which Slurm sets beside CUDA's; Ray and verl refuse both together",
)
# torch.distributed.run kills ranks 30 s after it passed a signal on, before large models are saved
# (torch/distributed/launcher/api.py reads this; versions without it keep to 30 s).
SHUTDOWN = Variable(
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
    str(SAVE_SECONDS),
    "seconds that torchrun leaves its ranks to save after a signal; its default is 30",
)


def plan_environment(work: Work, place: Situation, *, processes: int, torchrun: bool) -> list[Variable]:
    """What is set and unset for processes of this machine; what the user has set stays."""
    found = [ROCR] if "ROCR_VISIBLE_DEVICES" in place.environ else []
    if torchrun:
        found.append(SHUTDOWN)
    if processes > 1:
        if "OMP_NUM_THREADS" not in place.environ:
            share = f"{place.cores} cores for {processes} processes; torchrun's default is 1"
            found.append(Variable("OMP_NUM_THREADS", str(max(1, place.cores // processes)), share))
        network = network_variables(place.interface, place.interface_reason, place.environ)
        found += [Variable(*line) for line in network]
    return [each for each in [*found, *plan_reporters(work, place.environ)] if each.name not in work.environment]


def plan_reporters(work: Work, environ: Mapping[str, str]) -> list[Variable]:
    """Names for Weights & Biases, where the run reports to it; the key stays in the caller's environment."""
    if "wandb" not in _listed(work.settings.get("report_to")):
        return []
    name = work.directory.rstrip("/").rpartition("/")[2]
    named = (
        Variable(
            "WANDB_PROJECT", f"envdoctor-{work.recipe}", "runs of one recipe side by side; the default is huggingface"
        ),
        Variable("WANDB_NAME", name, "the run's folder"),
    )
    return [each for each in named if each.name not in environ]


def plan_notes(work: Work, place: Situation) -> list[str]:
    """What is left as it is, and what might be better, each with its reason."""
    notes = []
    visible = place.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        whose = "the allocation's GPUs" if place.allocation else "yours"
        notes.append(f"CUDA_VISIBLE_DEVICES={visible} is kept: {whose}")
    if place.infiniband:
        notes.append(
            f"InfiniBand ({', '.join(place.infiniband)}): NCCL finds it by itself, NCCL_IB_HCA is left alone"
        )
    notes += suggest_home(work, place)
    return notes


def suggest_home(work: Work, place: Situation) -> list[str]:
    """A bigger disk for what the hub sends, where HF_HOME is not set and the home is small."""
    model = str(work.settings.get("model") or "")
    if not model or model.startswith(("/", ".", "~")) or {"HF_HOME", "HF_HUB_CACHE"} & place.environ.keys():
        return []
    biggest = max(place.disks, key=lambda disk: disk.free, default=None)
    if place.home is None or biggest is None or place.home.free >= SMALL_HOME or biggest.free < 2 * place.home.free:
        return []
    better = f"export HF_HOME={biggest.path}/huggingface ({_room(biggest)})"
    return [f"HF_HOME is not set and {_room(place.home)}: before a large download, {better}"]


def _room(disk: Disk) -> str:
    return f"{disk.path} has {disk.free / GIB:.0f} GiB free"


def _listed(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else str(value or "").split(",")
