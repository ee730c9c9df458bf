"""Reads this machine and its scheduler for the launchers; queries only what the requested launcher needs."""

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
from envdoctor.training.launchers.job_state import query_slurm
from envdoctor.training.launchers.records import Allocation, Disk, LaunchContext, LaunchOptions, Partition
from envdoctor.training.launchers.slurm import parse_partitions

SCHEDULER_SECONDS = 20.0  # a busy slurmctld responds late
# Usual directories of large disks on clusters and rented machines. Variables first: they are set by the site.
LARGE_FOLDERS = (
    "$SCRATCH", "$WORK", "$PROJECT", "/scratch/$USER", "/workspace", "/data", "/mnt/data", "/mnt/nvme",
    "/mnt/localdisk",
)  # fmt: skip
VARIABLES = (
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "HF_HOME", "HF_HUB_CACHE", "WANDB_PROJECT", "WANDB_NAME", "RAY_ADDRESS",
)  # fmt: skip


def read_context(
    options: LaunchOptions, environ: Mapping[str, str] = os.environ, *, single_process: bool = False
) -> LaunchContext:
    """Read the context of a launch; a single process on this machine needs neither disks nor GPUs."""
    interfaces = node.read_interfaces()
    uses_slurm = options.launcher == "slurm" or options.job.is_set
    requested = "" if uses_slurm else options.interface or environ.get("NCCL_SOCKET_IFNAME", "")
    name, reason, address = _select_interface(interfaces, requested)
    if not uses_slurm and (gloo := environ.get("GLOO_SOCKET_IFNAME")):
        _select_interface(interfaces, "=" + gloo)
    disks = {} if single_process else _read_disks(environ)
    return LaunchContext(
        host=socket.gethostname(),
        address=address,
        interface=name,
        interface_reason=reason,
        infiniband=tuple(item.name for item in interfaces if item.up and item.kind == node.INFINIBAND),
        cores=len(os.sched_getaffinity(0)),
        gpus=0 if single_process else count_gpus(environ),
        environ={name: environ[name] for name in VARIABLES if name in environ},
        limits=read_limits(),
        allocation=read_allocation(environ) if uses_slurm else None,
        partitions=read_partitions() if uses_slurm and "SLURM_JOB_ID" not in environ else (),
        slurm=shutil.which("sbatch") is not None,
        home=disks.get("home"),
        disks=tuple(disk for role, disk in disks.items() if role != "home"),
    )


def _select_interface(interfaces: Sequence[node.Interface], requested: str) -> tuple[str, str, str]:
    """Return name, reason and address of this machine's network interface."""
    try:
        name, reason = node.choose_interface(interfaces, requested)
    except node.InterfaceError as error:
        names = (
            ", ".join(item.name for item in interfaces if item.is_external) or "none that leads to another machine"
        )
        expected = f"one of the interfaces that are up: {names}"
        raise BadInput(str(error), expected=expected, hint="ip -brief address") from None
    address = next((item.address for item in interfaces if item.name == name.split(",")[0]), "")
    return name, reason, address or "127.0.0.1"


def count_gpus(environ: Mapping[str, str]) -> int:
    """Count the GPUs that processes on this machine can use: those of CUDA_VISIBLE_DEVICES, else all of NVML."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([entry for entry in visible.split(",") if entry.strip() not in ("", "-1", "NoDevFiles")])
    return len(read_nvml().gpus.value or ())


def read_limits() -> tuple[str, ...]:
    """Return the ulimit lines for processes on this machine: each soft limit below its hard limit is raised."""
    lines = []
    for name, (number, reason) in node.LIMITS.items():
        soft, hard = resource.getrlimit(number)
        if node.needs_raising(name, soft, hard):
            lines.append(f"{node.limit_line(name, hard)}  # was {node.format_limit(soft)}; {reason}")
    return tuple(lines)


def read_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """Read the allocation of this process from SLURM's variables, and its first node's address from scontrol."""
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    nodelist = environ.get("SLURM_JOB_NODELIST", "")
    names = query_slurm(["scontrol", "show", "hostnames", nodelist], SCHEDULER_SECONDS).split() if nodelist else []
    first = parse_address(query_slurm(["scontrol", "show", "node", names[0]], SCHEDULER_SECONDS)) if names else ""
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
    """Parse a node's address from `scontrol show node`.

    Sample: "NodeName=n1 Arch=x86_64\\n   NodeAddr=10.0.0.7 NodeHostName=n1 Port=6818 Version=22.05.8" -> "10.0.0.7"
    """
    match = re.search(r"\bNodeAddr=(\S+)", text)
    return match[1] if match else ""


def read_partitions() -> tuple[Partition, ...]:
    """Read SLURM's partitions; empty where sinfo fails."""
    return parse_partitions(query_slurm(["sinfo", "--noheader", "--format=%P|%G|%c"], SCHEDULER_SECONDS))


def _read_disks(environ: Mapping[str, str]) -> dict[str, Disk]:
    """Read the free space of the home directory and of each writable directory of LARGE_FOLDERS."""
    mounts = parse_mounts(_read_text(Path("/proc/mounts")))
    disks: dict[str, Disk] = {}
    for role in ("home", *LARGE_FOLDERS):
        pattern = "$HOME" if role == "home" else role
        path = re.sub(r"\$(\w+)", lambda match: environ.get(match[1], ""), pattern)
        if not path.startswith("/") or path.endswith("/") or (role != "home" and not os.access(path, os.W_OK)):
            continue
        filesystem = read_filesystem(Path(path), mounts).value
        if filesystem:
            disks[role] = Disk(path, filesystem.free)
    return disks


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
