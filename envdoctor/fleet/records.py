"""Records of a fleet check: the reports of the nodes, their compared facts, and the result."""

from __future__ import annotations

from typing import Any, Literal

from envdoctor.core.record import Record
from envdoctor.core.records import Finding

FLEET_SCHEMA = 1

Method = Literal["ssh", "slurm", "ray", "recorded"]
Failure = Literal[
    "deadline", "refused", "unknown host", "unreachable", "host key", "permission", "no python", "crashed",
    "garbage", "flood", "not listed",
]  # fmt: skip

STARTERS = {"slurm": "srun --nodelist={node} ", "local": ""}


def on_node(method: str, node: str, command: str) -> str:
    """A command with the program that starts it on a node."""
    return STARTERS.get(method, "ssh {node} ").format(node=node) + command


class Clock(Record, frozen=True):
    """The offset of a node's clock from this machine's, positive where the node is ahead, in seconds."""

    offset: float
    uncertainty: float


class NodeReport(Record, frozen=True, kw_only=True):
    """What one node sent: the probe's facts and the envelope of its `envdoctor check`; or why it sent none."""

    node: str
    probe: dict[str, Any] = {}
    check: dict[str, Any] = {}
    clock: Clock | None = None
    failure: Failure | None = None
    message: str = ""


class NodeFacts(Record, frozen=True, kw_only=True):
    """The compared facts of one node: display values by name."""

    node: str
    facts: dict[str, str] = {}
    packages: dict[str, str] = {}  # versions by name, to report which packages differ
    findings: tuple[Finding, ...] = ()  # those that need no comparison with other nodes
    clock: Clock | None = None


class Group(Record, frozen=True):
    """Nodes with the same facts."""

    nodes: str  # host list: node[001-998]
    count: int
    differences: dict[str, str]  # facts that differ from the majority
    failure: str = ""  # why the nodes did not respond


class FleetCheckResult(Record, frozen=True, kw_only=True):
    """The result of `fleet check`."""

    schema: int = FLEET_SCHEMA
    method: Method
    nodes: int
    answered: int
    seconds: float
    common: dict[str, str]  # the majority's value of each fact
    groups: tuple[Group, ...]
    clocks: dict[str, Clock]  # relative to the fleet's median
    findings: tuple[Finding, ...]
