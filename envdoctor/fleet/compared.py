"""What each compared fact means where nodes differ in it: its id, how bad that is, and what to do."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.records import Record

Severity = Literal["error", "warning", "info"]


class Compared(Record, frozen=True):
    """One fact, or a family of them by the beginning of its name.

    In `command`, {node} is where to act, {expected} what most have, and {name} what is left of the fact's name.
    """

    fact: str
    id: str
    cause: str
    severity: Severity
    fix: str
    command: str = "envdoctor check"


SAME_IMAGE = (
    "Bring it to what the others have: a job over nodes of different kinds runs as its slowest, or not at all."
)
SAME_STACK = "Install the same lock on every node: ranks with other versions hang or disagree."
LIMITS = "Raise it in /etc/security/limits.conf, or in the unit of sshd or slurmd, and log in again."
TABLE = (
    Compared(
        "envdoctor",
        "FLT004",
        "node-differs",
        "info",
        "Install the same envdoctor on every node.",
        "envdoctor --version",
    ),
    Compared(
        "driver", "FLT010", "node-differs", "error", SAME_IMAGE, "nvidia-smi --query-gpu=driver_version --format=csv"
    ),
    Compared("CUDA of the driver", "FLT011", "node-differs", "error", SAME_IMAGE, "nvidia-smi"),
    Compared(
        "GPUs",
        "FLT012",
        "node-differs",
        "error",
        "Look whether a GPU fell off the bus; drain the node.",
        "nvidia-smi -L",
    ),
    Compared("GPU ", "FLT016", "node-differs", "warning", "Set the GPUs alike on every node.", "nvidia-smi -q"),
    Compared(
        "NVLink",
        "FLT017",
        "node-differs",
        "error",
        "Reset the GPUs, or have the links repaired.",
        "nvidia-smi nvlink --status",
    ),
    Compared(
        "environment",
        "FLT020",
        "wrong-python-env",
        "error",
        "Install the environment there, or name it with --venv.",
        "envdoctor envs",
    ),
    Compared("python", "FLT021", "node-differs", "error", SAME_STACK),
    Compared("torch", "FLT022", "node-differs", "error", SAME_STACK),
    Compared("NCCL", "FLT023", "nccl-lib-mismatch", "error", SAME_STACK),
    Compared("lock", "FLT024", "node-differs", "warning", SAME_STACK, "envdoctor envs"),
    Compared("packages", "FLT025", "node-differs", "warning", SAME_STACK),
    Compared(
        "interfaces",
        "FLT031",
        "nccl-interface",
        "warning",
        "Name on each node the interface that it has: NCCL_SOCKET_IFNAME takes several, and beginnings.",
        "ip -brief address",
    ),
    Compared(
        "MTU of ",
        "FLT032",
        "nccl-interface",
        "error",
        "Set the same MTU: larger packets vanish, and collectives hang at large sizes.",
        "sudo ip link set dev {name} mtu {expected}",
    ),
    Compared(
        "link of ", "FLT033", "nccl-interface", "warning", "Bring the link up.", "sudo ip link set dev {name} up"
    ),
    Compared(
        "speed of ",
        "FLT033",
        "nccl-interface",
        "warning",
        "Look at the cable and the switch's port.",
        "ethtool {name}",
    ),
    Compared(
        "InfiniBand",
        "FLT034",
        "nccl-interface",
        "error",
        "Look at the port, its cable and the subnet manager.",
        "ibstat",
    ),
    Compared(
        "/dev/shm",
        "FLT035",
        "shm-too-small",
        "warning",
        "Give it the same size.",
        "sudo mount -o remount,size={size} /dev/shm",
    ),
    Compared("ulimit ", "FLT036", "ulimit-too-low", "warning", LIMITS, "ulimit -a"),
    Compared(
        "room for models", "FLT037", "disk-full", "warning", "Make room, or set HF_HOME to a larger disk.", "df -h"
    ),
    Compared(
        "hub",
        "FLT038",
        "hub-offline",
        "warning",
        "Open the way, or set HF_HUB_OFFLINE=1 and bring the files there.",
        "curl -sSI https://huggingface.co",
    ),
    Compared(
        "address of ",
        "FLT039",
        "nccl-interface",
        "warning",
        "Let every node resolve the others to the same address.",
        "getent hosts {name}",
    ),
    Compared("memory", "FLT041", "node-differs", "warning", "Look for a memory module that is not seen.", "free -h"),
    Compared("cpu count", "FLT042", "node-differs", "warning", SAME_IMAGE, "lscpu"),
    Compared("", "FLT043", "node-differs", "info", SAME_IMAGE),
)


def compared(fact: str) -> Compared:
    """What is said of a fact: the whole name first, then its beginning."""
    exact = next((row for row in TABLE if row.fact == fact and row.fact), None)
    return exact or next(
        row for row in TABLE if fact.startswith(row.fact) and (row.fact.endswith(" ") or not row.fact)
    )
