"""Environment variables of a run, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

from envdoctor.core.shell_commands import quote
from envdoctor.training.launchers.node import network_variables
from envdoctor.training.launchers.records import Disk, LaunchContext, RunSpec, Variable

SAVE_SECONDS = 120  # between a warning signal and the end: for the current step and a checkpoint
GIB = 1 << 30
SMALL_HOME = 100 * GIB  # a 16-bit model of 20 billion parameters and its download need 80 GiB

# Slurm sets ROCR_VISIBLE_DEVICES in addition to CUDA_VISIBLE_DEVICES (gres.conf: without flags, nvidia_gpu_env and
# amd_gpu_env both apply). Ray since 2.45 and verl reject the combination: "Please don't set ROCR_VISIBLE_DEVICES when
# HIP/CUDA_VISIBLE_DEVICES is set" (verl/single_controller/base/worker.py).
ROCR = Variable(
    "ROCR_VISIBLE_DEVICES",
    None,
    "AMD's list of GPUs, which Slurm sets in addition to CUDA's; Ray and verl reject both together",
)
# torch.distributed.run kills its ranks 30 s after it forwarded a signal, before large models are saved
# (torch/distributed/launcher/api.py reads this variable; versions without it keep 30 s).
SHUTDOWN = Variable(
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
    str(SAVE_SECONDS),
    "seconds that torchrun gives its ranks to save after a signal; its default is 30",
)


def plan_environment(spec: RunSpec, context: LaunchContext, *, processes: int, torchrun: bool) -> list[Variable]:
    """Return the variables to set and unset for processes on this machine. Values set by the user are kept."""
    variables = [ROCR] if "ROCR_VISIBLE_DEVICES" in context.environ else []
    if torchrun:
        variables.append(SHUTDOWN)
    if processes > 1:
        if "OMP_NUM_THREADS" not in context.environ:
            reason = f"{context.cores} cores for {processes} processes; torchrun's default is 1"
            variables.append(Variable("OMP_NUM_THREADS", str(max(1, context.cores // processes)), reason))
        network = network_variables(context.interface, context.interface_reason, context.environ)
        variables += [Variable(*line) for line in network]
    variables += plan_reporters(spec, context.environ)
    return [variable for variable in variables if variable.name not in spec.environment]


def plan_reporters(spec: RunSpec, environ: Mapping[str, str]) -> list[Variable]:
    """Return project and run name for Weights & Biases where it is used; the API key comes from the caller."""
    report_to = spec.settings.get("report_to")
    reporters = report_to if isinstance(report_to, list | tuple) else str(report_to or "").split(",")
    if "wandb" not in reporters:
        return []
    name = spec.directory.rstrip("/").rpartition("/")[2]
    reason = "one project for the runs of a recipe; the default is huggingface"
    variables = (
        Variable("WANDB_PROJECT", f"envdoctor-{spec.recipe}", reason),
        Variable("WANDB_NAME", name, "the run's directory"),
    )
    return [variable for variable in variables if variable.name not in environ]


def plan_notes(spec: RunSpec, context: LaunchContext) -> list[str]:
    """Return notes on settings that are kept and on possible improvements."""
    notes = []
    visible = context.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        origin = "set by the allocation" if context.allocation else "set by you"
        notes.append(f"CUDA_VISIBLE_DEVICES={visible} is kept: {origin}")
    if context.infiniband:
        devices = ", ".join(context.infiniband)
        notes.append(f"InfiniBand ({devices}): NCCL finds it by itself, NCCL_IB_HCA is not set")
    return notes + suggest_home(spec, context)


def suggest_home(spec: RunSpec, context: LaunchContext) -> list[str]:
    """Suggest a larger disk for downloads from the Hub where HF_HOME is not set and the home is small."""
    model = str(spec.settings.get("model") or "")
    if not model or model.startswith(("/", ".", "~")) or {"HF_HOME", "HF_HUB_CACHE"} & context.environ.keys():
        return []
    home, largest = context.home, max(context.disks, key=lambda disk: disk.free, default=None)
    if home is None or largest is None or home.free >= SMALL_HOME or largest.free < 2 * home.free:
        return []
    command = f"export HF_HOME={quote(largest.path + '/huggingface')} ({_free_space(largest)})"
    return [f"HF_HOME is not set and {_free_space(home)}: before a large download, {command}"]


def _free_space(disk: Disk) -> str:
    return f"{disk.path} has {disk.free / GIB:.0f} GiB free"
