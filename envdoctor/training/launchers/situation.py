"""What this machine and its scheduler offer to a run. Only what the launcher needs is read."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from envdoctor.core.errors import BadInput
from envdoctor.machine.gpu import read_nvml
from envdoctor.machine.storage import parse_mounts, read_filesystem
from envdoctor.training.launchers import node
from envdoctor.training.launchers.job_state import ask_slurm
from envdoctor.training.launchers.records import Allocation, Ask, Disk, NodeKind, Situation
from envdoctor.training.launchers.slurm import parse_kinds

SCHEDULER_SECONDS = 20.0  # a busy slurmctld answers late
# Where clusters and rented machines keep their large disks; variables first, since they are the site's own word.
BIG = (
    "$SCRATCH", "$WORK", "$PROJECT", "/scratch/$USER", "/workspace", "/data", "/mnt/data", "/mnt/nvme",
    "/mnt/localdisk",
)  # fmt: skip
NAMES = (
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "HF_HOME", "HF_HUB_CACHE", "WANDB_PROJECT", "WANDB_NAME", "RAY_ADDRESS",
)  # fmt: skip


def read_situation(ask: Ask, environ: Mapping[str, str] = os.environ, *, plain: bool = False) -> Situation:
    """What there is; `plain`: one process of this machine is to be started, which needs next to nothing of it."""
    interfaces = node.read_interfaces()
    wanted = ask.interface or environ.get("NCCL_SOCKET_IFNAME", "")
    in_job = ask.launcher == "slurm" or ask.job.any
    name, reason, address = _interface(interfaces, "" if in_job else wanted)
    if not in_job and (gloo := environ.get("GLOO_SOCKET_IFNAME")):
        _interface(interfaces, "=" + gloo)
    places = {} if plain else _read_disks(environ)
    return Situation(
        host=socket.gethostname(),
        address=address,
        interface=name,
        interface_reason=reason,
        infiniband=tuple(each.name for each in interfaces if each.up and each.kind == node.INFINIBAND),
        cores=len(os.sched_getaffinity(0)),
        gpus=0 if plain else count_gpus(environ),
        environ={name: environ[name] for name in NAMES if name in environ},
        limits=read_limits(),
        allocation=read_allocation(environ) if in_job else None,
        kinds=read_kinds() if in_job and "SLURM_JOB_ID" not in environ else (),
        slurm=shutil.which("sbatch") is not None,
        home=places.get("home"),
        disks=tuple(disk for role, disk in places.items() if role != "home"),
    )


def _interface(interfaces: Sequence[node.Interface], wanted: str) -> tuple[str, str, str]:
    """Name, reason and address of the interface of this machine."""
    try:
        name, reason = node.choose_interface(interfaces, wanted)
    except node.Problem as problem:
        names = ", ".join(each.name for each in interfaces if each.real) or "none that leads to another machine"
        raise BadInput(
            str(problem), expected=f"one of those; up and real: {names}", hint="ip -brief address"
        ) from None
    address = next((each.address for each in interfaces if each.name == name.split(",")[0]), "")
    return name, reason, address or "127.0.0.1"


def count_gpus(environ: Mapping[str, str]) -> int:
    """GPUs for processes of this machine: those that CUDA_VISIBLE_DEVICES leaves, else all that NVML shows."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([each for each in visible.split(",") if each.strip() not in ("", "-1", "NoDevFiles")])
    return len(read_nvml().gpus.value or ())


def read_limits() -> tuple[str, ...]:
    """The ulimit lines for processes of this machine: a soft limit below its hard one is raised to it."""
    lines = []
    for name, (number, reason) in node.LIMITS.items():
        soft, hard = resource.getrlimit(number)
        if node.is_raised(name, soft, hard):
            lines.append(f"{node.limit_line(name, hard)}  # was {node.shown(soft)}; {reason}")
    return tuple(lines)


def read_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The allocation that this process runs in, by SLURM's variables; its first node's address from scontrol."""
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    listed = environ.get("SLURM_JOB_NODELIST", "")
    names = ask_slurm(["scontrol", "show", "hostnames", listed], SCHEDULER_SECONDS).split() if listed else []
    first = parse_address(ask_slurm(["scontrol", "show", "node", names[0]], SCHEDULER_SECONDS)) if names else ""
    nodes = environ.get("SLURM_JOB_NUM_NODES", "")
    gpus = environ.get("SLURM_GPUS_ON_NODE", "")
    return Allocation(
        job=job,
        nodes=int(nodes) if nodes.isdigit() else max(1, len(names)),
        first=first or (names[0] if names else socket.gethostname()),
        gpus=int(gpus) if gpus.isdigit() else 0,
        names=tuple(names),
    )


def parse_address(text: str) -> str:
    """A node's address, from `scontrol show node`.

    Sample: "NodeName=n1 Arch=x86_64\\n   NodeAddr=10.0.0.7 NodeHostName=n1 Port=6818 Version=22.05.8" -> "10.0.0.7"
    """
    found = re.search(r"\bNodeAddr=(\S+)", text)
    return found[1] if found else ""


def read_kinds() -> tuple[NodeKind, ...]:
    """What the partitions' nodes have; nothing where SLURM does not say."""
    return parse_kinds(ask_slurm(["sinfo", "--noheader", "--format=%P|%G|%c"], SCHEDULER_SECONDS))


def _read_disks(environ: Mapping[str, str]) -> dict[str, Disk]:
    """The home and every large place that is there and can be written to."""
    mounts = parse_mounts(_text(Path("/proc/mounts")))
    found: dict[str, Disk] = {}
    for role in ("home", *BIG):
        text = (
            environ.get("HOME", "") if role == "home" else re.sub(r"\$(\w+)", lambda m: environ.get(m[1], ""), role)
        )
        if not text.startswith("/") or text.endswith("/") or (role != "home" and not os.access(text, os.W_OK)):
            continue
        filesystem = read_filesystem(Path(text), mounts).value
        if filesystem:
            found[role] = Disk(text, filesystem.free)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
