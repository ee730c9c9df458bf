"""What a fleet's nodes answered, and what comes of it."""

from __future__ import annotations

from typing import Any, Literal

from envdoctor.core.records import Finding, Record

FLEET_SCHEMA = 1

How = Literal["ssh", "slurm", "ray", "recorded"]
Failure = Literal[
    "deadline", "refused", "unknown host", "unreachable", "host key", "permission", "no python", "crashed",
    "garbage", "flood", "not listed",
]  # fmt: skip


class Clock(Record, frozen=True):
    """How far a node's clock is ahead of this machine's, and how exactly that is known; seconds."""

    offset: float
    uncertainty: float


class NodeAnswer(Record, frozen=True, kw_only=True):
    """What one node sent: its probe's facts and its check, as they were read; or why there is nothing."""

    node: str
    probe: dict[str, Any] = {}
    check: dict[str, Any] = {}
    clock: Clock | None = None
    failure: Failure | None = None
    message: str = ""


class NodeFacts(Record, frozen=True, kw_only=True):
    """What of a node is compared: values as people read them, by name."""

    node: str
    facts: dict[str, str] = {}
    packages: dict[str, str] = {}  # versions by name, for saying which differ
    findings: tuple[Finding, ...] = ()  # of its own check and of numbers that need no other node
    clock: Clock | None = None


class Group(Record, frozen=True):
    """Nodes that are alike: how they differ from most, by the facts' names."""

    nodes: str  # folded: node[001-998]
    count: int
    differs: dict[str, str]
    failure: str = ""  # why they did not answer


class FleetChecked(Record, frozen=True, kw_only=True):
    """A fleet: what most nodes have, the groups, and the findings."""

    schema: int = FLEET_SCHEMA
    how: How
    nodes: int
    answered: int
    seconds: float
    common: dict[str, str]  # what most have
    groups: tuple[Group, ...]
    clocks: dict[str, Clock]  # against the median of the fleet
    findings: tuple[Finding, ...]
