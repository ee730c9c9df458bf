"""The finding for each compared fact in which nodes differ: id, cause, severity, fix and command."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record

Severity = Literal["error", "warning", "info"]


class ComparedFact(Record, frozen=True):
    """The finding for one fact, or for all facts with a prefix that ends in a space.

    `inspection` examines the node before `command` changes it. Placeholders in both: {node}, the node to change;
    {expected}, the majority's value; {size}, the same in a form for mount(8); {name}, the fact's name without the
    prefix.
    """

    fact: str
    id: str
    cause: str
    severity: Severity
    fix: str
    command: str = "envdoctor check"
    inspection: str = ""


SAME_IMAGE = (
    "Make it the same as on the other nodes: a job over different nodes runs at the speed of the slowest, or fails."
)
SAME_STACK = "Install the same lock on every node: ranks with different versions hang or compute different results."
LIMITS = "Raise it in /etc/security/limits.conf, or in the systemd unit of sshd or slurmd, then log in again."
TABLE = (
    ComparedFact(
        "envdoctor",
        "FLT004",
        "node-differs",
        "info",
        "Install the same envdoctor on every node.",
        "envdoctor --version",
    ),
    ComparedFact(
        "driver", "FLT010", "node-differs", "error", SAME_IMAGE, "nvidia-smi --query-gpu=driver_version --format=csv"
    ),
    ComparedFact("CUDA of the driver", "FLT011", "node-differs", "error", SAME_IMAGE, "nvidia-smi"),
    ComparedFact(
        "GPUs",
        "FLT012",
        "node-differs",
        "error",
        "Check whether a GPU fell off the bus; drain the node.",
        "nvidia-smi -L",
    ),
    ComparedFact(
        "GPU ", "FLT016", "node-differs", "warning", "Configure the GPUs alike on all nodes.", "nvidia-smi -q"
    ),
    ComparedFact(
        "NVLink",
        "FLT017",
        "node-differs",
        "error",
        "Reset the GPUs, or have the links repaired.",
        "nvidia-smi nvlink --status",
    ),
    ComparedFact(
        "environment",
        "FLT020",
        "wrong-python-env",
        "error",
        "Install the environment on the node, or give its path with --venv.",
        "envdoctor envs",
    ),
    ComparedFact("python", "FLT021", "node-differs", "error", SAME_STACK),
    ComparedFact("torch", "FLT022", "node-differs", "error", SAME_STACK),
    ComparedFact("NCCL", "FLT023", "nccl-lib-mismatch", "error", SAME_STACK),
    ComparedFact("lock", "FLT024", "node-differs", "warning", SAME_STACK, "envdoctor envs"),
    ComparedFact("packages", "FLT025", "node-differs", "warning", SAME_STACK),
    ComparedFact(
        "interfaces",
        "FLT031",
        "nccl-interface",
        "warning",
        "Set NCCL_SOCKET_IFNAME to match the interfaces of all nodes: it takes several names and prefixes.",
        "ip -brief address",
    ),
    ComparedFact(
        "MTU of ",
        "FLT032",
        "nccl-interface",
        "error",
        "Set the same MTU: larger packets vanish, and collectives hang at large sizes.",
        "sudo ip link set dev {name} mtu {expected}",
        "ip link show dev {name}",
    ),
    ComparedFact(
        "link of ",
        "FLT033",
        "nccl-interface",
        "warning",
        "Check the cable if the link is up without a carrier; bring it up if it is down.",
        "sudo ip link set dev {name} up",
        "ip link show dev {name}",
    ),
    ComparedFact(
        "speed of ", "FLT033", "nccl-interface", "warning", "Check the cable and the switch port.", "ethtool {name}"
    ),
    ComparedFact(
        "InfiniBand",
        "FLT034",
        "nccl-interface",
        "error",
        "Check the port, its cable and the subnet manager.",
        "ibstat",
    ),
    ComparedFact(
        "/dev/shm",
        "FLT035",
        "shm-too-small",
        "warning",
        "Mount it with the same size.",
        "sudo mount -o remount,size={size} /dev/shm",
        "df -h /dev/shm",
    ),
    ComparedFact("ulimit ", "FLT036", "ulimit-too-low", "warning", LIMITS, "ulimit -a"),
    ComparedFact(
        "disk space for models",
        "FLT037",
        "disk-full",
        "warning",
        "Free some, or set HF_HOME to a larger disk.",
        "df -h",
    ),
    ComparedFact(
        "hub",
        "FLT038",
        "hub-offline",
        "warning",
        "Allow the connection, or set HF_HUB_OFFLINE=1 and copy the files to the node.",
        "curl -sSI https://huggingface.co",
    ),
    ComparedFact(
        "address of ",
        "FLT039",
        "nccl-interface",
        "warning",
        "Make every node resolve the other nodes to the same addresses.",
        "getent hosts {name}",
    ),
    ComparedFact("memory", "FLT041", "node-differs", "warning", "Check for undetected memory modules.", "free -h"),
    ComparedFact("cpu count", "FLT042", "node-differs", "warning", SAME_IMAGE, "lscpu"),
    ComparedFact("", "FLT043", "node-differs", "info", SAME_IMAGE),
)


def find_compared_fact(fact: str) -> ComparedFact:
    """Return the row of a fact: the row with its exact name, else with a prefix, else the last row."""
    exact = next((row for row in TABLE if row.fact == fact and row.fact), None)
    return exact or next(
        row for row in TABLE if fact.startswith(row.fact) and (row.fact.endswith(" ") or not row.fact)
    )
