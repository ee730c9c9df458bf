"""Compares the nodes of a fleet by majority: facts of nodes are added one by one, groups and findings result."""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Mapping

from envdoctor import __version__
from envdoctor.core.program import DISTRIBUTION
from envdoctor.core.records import Evidence, Finding
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.fleet.fact_table import ComparedFact, find_compared_fact
from envdoctor.fleet.failures import FIXES
from envdoctor.fleet.host_list import format_host_list
from envdoctor.fleet.records import (
    Clock,
    Failure,
    Group,
    Method,
    NodeFacts,
    NodeReport,
    fill_command,
    on_node,
    remedy_on_node,
)

CLOCK_SECONDS = 1.0  # tokens, certificates and rendezvous tolerate some seconds; NTP keeps a clock within 0.1 s
SHM_GIB = 1  # smaller is too small, see HOST001
MAX_PACKAGE_SETS = 16  # kept, to report which packages differ
MAX_PACKAGES = 5  # in one message
MAX_VALUES = 6  # in one message
ORDER = {"error": 0, "crashed": 0, "warning": 1, "unknown": 2, "info": 3}
NO_ENVDOCTOR = "no envdoctor"


class FleetComparison:
    """The nodes so far. Of each fact only its values and the names of their nodes are kept."""

    def __init__(self, method: Method, command: str = "envdoctor") -> None:
        self.method: Method = method
        self.command = command
        self.nodes: list[str] = []
        self._values: dict[str, dict[str, list[str]]] = {}  # nodes by fact and value
        self._failures: dict[str, tuple[Failure, str]] = {}  # kind and message by node
        self._no_envdoctor: dict[str, str] = {}  # reason by node
        self._node_findings: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
        self._clocks: dict[str, Clock] = {}
        self._packages: dict[str, dict[str, str]] = {}  # versions by name, by the hash of the set

    def add(self, report: NodeReport, facts: NodeFacts) -> None:
        """Add one node."""
        node = report.node
        self.nodes.append(node)
        if report.failure:
            self._failures[node] = report.failure, report.message
        elif report.message:
            self._no_envdoctor[node] = report.message
        for fact, value in facts.facts.items():
            if value:
                self._values.setdefault(fact, {}).setdefault(value, []).append(node)
        for finding in facts.findings:
            self._node_findings.setdefault((finding.id, finding.message), (finding, []))[1].append(node)
        if facts.clock:
            self._clocks[node] = facts.clock
        digest = facts.facts.get("packages", "")
        if digest and len(self._packages) < MAX_PACKAGE_SETS:
            self._packages.setdefault(digest, facts.packages)

    @property
    def answered(self) -> int:
        """The number of nodes with a readable report."""
        return len(self.nodes) - len(self._failures)

    def common(self) -> dict[str, str]:
        """Return the value of each fact that more than half of the nodes have."""
        values = {fact: majority(nodes) for fact, nodes in self._values.items()}
        return {fact: value for fact, value in values.items() if value is not None}

    def clocks(self) -> dict[str, Clock]:
        """Return the clock offsets relative to the fleet's median, so that a wrong clock here does not matter."""
        if not self._clocks:
            return {}
        median = statistics.median(clock.offset for clock in self._clocks.values())
        return {
            node: Clock(round(clock.offset - median, 3), clock.uncertainty)
            for node, clock in sorted(self._clocks.items())
        }

    def groups(self) -> tuple[Group, ...]:
        """Return groups of nodes with the same facts, the largest first, with their differences from the majority."""
        differences: dict[str, dict[str, str]] = {node: {} for node in self.nodes}
        for fact, values in self._values.items():
            majority_value = majority(values)
            for value, nodes in values.items() if len(values) > 1 else ():
                for node in nodes if value != majority_value else ():
                    differences[node][fact] = value
        for node, clock in self.clocks().items():
            if _is_off(clock):
                differences[node]["clock"] = f"{clock.offset:+.1f} s"
        groups: dict[tuple[object, ...], list[str]] = {}
        for node, facts in differences.items():
            groups.setdefault((self._failure(node), *sorted(facts.items())), []).append(node)
        ranked = sorted(groups.values(), key=lambda nodes: (-len(nodes), nodes))
        return tuple(
            Group(
                format_host_list(nodes),
                len(nodes),
                dict(sorted(differences[nodes[0]].items())),
                self._failure(nodes[0]),
            )
            for nodes in ranked
        )

    def _failure(self, node: str) -> str:
        if node in self._failures:
            return self._failures[node][0]
        return NO_ENVDOCTOR if node in self._no_envdoctor else ""

    def findings(self) -> tuple[Finding, ...]:
        """Return all findings, the most severe first."""
        findings = [
            *self._failure_findings(),
            *self._missing_envdoctor(),
            *(self._difference(fact, values) for fact, values in self._values.items() if len(values) > 1),
            *self._clock_skew(),
            *self._merged_node_findings(),
            *self._problems_on_all_nodes(),
        ]
        return tuple(
            sorted(findings, key=lambda finding: (ORDER.get(finding.status, 4), finding.id, finding.message))
        )

    def _failure_findings(self) -> list[Finding]:
        """Report the nodes without a report, one finding for each kind of failure."""
        kinds: dict[Failure, list[str]] = {}
        for node, (kind, _) in self._failures.items():
            kinds.setdefault(kind, []).append(node)
        return [self._failure_finding(kind, nodes) for kind, nodes in kinds.items()]

    def _failure_finding(self, kind: Failure, nodes: list[str]) -> Finding:
        first, hosts = nodes[0], format_host_list(nodes)
        reason = self._failures[first][1]
        if len({self._failures[node][1] for node in nodes}) > 1:
            reason += f" (on {first})"
        unreadable = kind in ("garbage", "flood")
        problem = "sent an unreadable report" if unreadable else "did not respond"
        fix, command = FIXES[kind]
        host, program = first.rpartition("@")[2], shlex.split(self.command)
        message = f"{hosts} {problem}, {kind}: {reason}; expected a report of envdoctor check"
        return Finding(
            "FLT002" if unreadable else "FLT001", "node-unreachable", "error", message,
            (Evidence("nodes", hosts, self.method), Evidence("failure", kind, self._failures[first][1])), fix,
            steps(fill_command(command, node=first, host=host, command=program)),
        )  # fmt: skip

    def _missing_envdoctor(self) -> list[Finding]:
        if not self._no_envdoctor:
            return []
        nodes = format_host_list(self._no_envdoctor)
        node, reason = next(iter(self._no_envdoctor.items()))
        message = f"{nodes}: {reason}; only the facts of a short probe and of nvidia-smi are compared"
        command = self._on_node(node, shell_command("uv tool install {}=={}", DISTRIBUTION, __version__))
        fix = "Install envdoctor on the node, or give the command that starts it with --command."
        evidence = (Evidence("nodes", nodes, reason),)
        return [Finding("FLT003", "wrong-python-env", "warning", message, evidence, fix, steps(command))]

    def _difference(self, fact: str, values: Mapping[str, list[str]]) -> Finding:
        row = find_compared_fact(fact)
        majority_value = majority(values)
        ranked = sorted(values.items(), key=lambda item: -len(item[1]))
        evidence = tuple(Evidence(fact, value, format_host_list(nodes)) for value, nodes in ranked[:MAX_VALUES])
        others = [(value, nodes) for value, nodes in ranked if value != majority_value]
        listed = "; ".join(f"{value} on {format_host_list(nodes)}" for value, nodes in others[:MAX_VALUES])
        if majority_value is None:
            message = f"{fact}: no majority, {len(values)} different values: {listed}; expected one on all"
        else:
            more = f" and {len(others) - MAX_VALUES} more" if len(others) > MAX_VALUES else ""
            count = _count(len(values[majority_value]))
            message = f"{fact}: {listed}{more}; expected {majority_value} as on {count}"
            if fact == "packages":
                message += self._package_differences(majority_value, others[0][0])
        remedies = self._remedies(row, fact, others[0][1][0], majority_value)
        return Finding(row.id, row.cause, row.severity, message, evidence, row.fix, remedies)

    def _package_differences(self, majority_value: str, odd: str) -> str:
        """Return the packages that differ between two sets, where both are kept."""
        if majority_value not in self._packages or odd not in self._packages:
            return ""
        observed, expected = self._packages[odd], self._packages[majority_value]
        names = sorted(name for name in observed.keys() | expected.keys() if observed.get(name) != expected.get(name))
        listed = [f"{name} {observed.get(name, 'none')} against {expected.get(name, 'none')}" for name in names]
        more = f" and {len(listed) - MAX_PACKAGES} more" if len(listed) > MAX_PACKAGES else ""
        return f" ({', '.join(listed[:MAX_PACKAGES])}{more})"

    def _remedies(self, row: ComparedFact, fact: str, node: str, majority_value: str | None) -> tuple[Remedy, ...]:
        """The remedy on one node. Without a majority, and where the majority has the problem, it only examines."""
        has_problem = majority_value == "down" or (row.fact == "/dev/shm" and _gibibytes(majority_value) < SHM_GIB)
        changes = not row.inspection or (majority_value and not has_problem)
        names = {
            "node": node,
            "expected": majority_value or "",
            "size": re.sub(r"\s*GiB.*", "G", majority_value or ""),
            "name": fact.removeprefix(row.fact),
        }
        commands = [command for command in (row.inspection, row.command if changes else "") if command]
        commands = [re.sub(r"^envdoctor\b", lambda _: self.command, command) for command in commands]
        return steps(*(self._on_node(node, fill_command(command, **names)) for command in commands))

    def _on_node(self, node: str, command: str) -> str:
        return on_node(self.method, node, command)

    def _clock_skew(self) -> list[Finding]:
        off = {node: clock for node, clock in self.clocks().items() if _is_off(clock)}
        if not off:
            return []
        ranked = sorted(off.items(), key=lambda item: -abs(item[1].offset))
        shown = ranked[:MAX_VALUES]
        listed = ", ".join(f"{node} by {clock.offset:+.1f} ± {clock.uncertainty:.2f} s" for node, clock in shown)
        more = f" and {len(ranked) - MAX_VALUES} more" if len(ranked) > MAX_VALUES else ""
        fleet = _count(len(self._clocks))
        message = f"clock: {listed}{more} off the median of {fleet}; expected within {CLOCK_SECONDS:.0f} s"
        evidence = tuple(Evidence("clock", f"{clock.offset:+.3f} s", node) for node, clock in shown)
        commands = ("timedatectl status", "chronyc tracking", "sudo chronyc makestep")
        fix = "Synchronise the clock with NTP; a step of the clock can disturb running jobs."
        remedies = steps(*(self._on_node(ranked[0][0], command) for command in commands))
        return [Finding("FLT030", "clock-skew", "error", message, evidence, fix, remedies)]

    def _merged_node_findings(self) -> list[Finding]:
        """Merge the findings of single nodes: one for all nodes with the same id and message."""
        merged = []
        for finding, nodes in self._node_findings.values():
            hosts = format_host_list(nodes)
            evidence = (Evidence("nodes", hosts, "envdoctor check"), *finding.evidence[1:])
            remedies = tuple(remedy_on_node(self.method, nodes[0], each) for each in finding.remedies)
            remedies = remedies or steps(self._on_node(nodes[0], "nvidia-smi -q"))
            message = f"{hosts}: {finding.message}"
            merged.append(
                Finding(
                    finding.id,
                    finding.cause,
                    finding.status,
                    message,
                    evidence,
                    finding.fix,
                    remedies,
                    finding.url,
                )
            )
        return merged

    def _problems_on_all_nodes(self) -> list[Finding]:
        """Report problems that a comparison cannot show, since every node has them."""
        findings = []
        for fact, problem in (("hub", "not reached"), ("environment", "none")):
            values = self._values.get(fact, {})
            if set(values) == {problem}:
                row, nodes = find_compared_fact(fact), values[problem]
                message = f"{fact}: {problem} on all of {_count(len(nodes))}"
                evidence = (Evidence(fact, problem, format_host_list(nodes)),)
                remedies = self._remedies(row, fact, nodes[0], None)
                findings.append(Finding(row.id, row.cause, "info", message, evidence, row.fix, remedies))
        return findings


def majority(values: Mapping[str, list[str]]) -> str | None:
    """Return the value that more than half of the nodes have; None where there is none."""
    value = max(values, key=lambda candidate: len(values[candidate]))
    return value if 2 * len(values[value]) > sum(map(len, values.values())) else None


def _gibibytes(size: str | None) -> float:
    number = re.match(r"[\d.]+", size or "")
    return float(number[0]) if number else 0.0


def _is_off(clock: Clock) -> bool:
    """Whether a clock is off by more than its uncertainty allows."""
    return abs(clock.offset) - clock.uncertainty > CLOCK_SECONDS


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"
