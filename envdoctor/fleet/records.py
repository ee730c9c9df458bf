"""Records of a fleet check: the reports of the nodes, their compared facts, and the result."""

from __future__ import annotations

import re
import shlex
from typing import Any, Literal

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Finding
from envdoctor.core.remedies import (
    Remedy,
    RootCommand,
    SetVariable,
    Step,
    SystemPackages,
    UnsetVariable,
    UserCommand,
    command_of,
    remedy_of,
)
from envdoctor.core.shell_commands import shell_command

FLEET_SCHEMA = 1

Method = Literal["ssh", "slurm", "ray", "recorded"]
Failure = Literal[
    "deadline", "refused", "unknown host", "unreachable", "host key", "permission", "no python", "crashed",
    "garbage", "flood", "not listed",
]  # fmt: skip

STARTERS = {"slurm": ("srun", "--pty", "--nodelist={node} ", "bash -c "), "ssh": ("ssh", "-t", "{node} ", "")}
NEEDS_SHELL = lazy_pattern(r"[^\w\s./:=@%+,-]|^ulimit ")  # quotes, pipes, variables, a built-in command
NEEDS_TERMINAL = lazy_pattern(r"\bsudo\b")  # for the password


def on_node(method: str, node: str, command: str) -> str:
    """A command with the program that starts it on a node, quoted for the shell of the node."""
    if method == "local":
        return command
    program, terminal, target, shell = STARTERS.get(method, STARTERS["ssh"])
    start = f"{program} {terminal} " if NEEDS_TERMINAL.search(command) else f"{program} "
    words = shell + shlex.quote(command) if NEEDS_SHELL.search(command) else command
    return start + target.format(node=node) + words


def fill_command(template: str, **values: str | list[str]) -> str:
    """A command of a table with values in place of `{node}` and others; each stays one word, a list several."""
    names = re.findall(r"\{(\w+)\}", template)
    return shell_command(re.sub(r"\{\w+\}", "{}", template), *(values[name] for name in names))


def remedy_on_node(method: str, node: str, remedy: Remedy) -> Remedy:
    """A remedy whose commands run on a node. Variables are set in the shell that starts the job."""

    def step_on_node(step: Step) -> Step:
        if isinstance(step, SetVariable | UnsetVariable):
            return step
        kind = RootCommand if isinstance(step, RootCommand | SystemPackages) else UserCommand
        return kind(command=on_node(method, node, command_of(step)))

    return remedy_of([step_on_node(step) for step in remedy.steps])


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
