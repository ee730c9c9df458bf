"""The odd one out, by majority. Pure: facts of nodes come in one after another, groups and findings come out."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from typing import Literal

from envdoctor.core.records import Evidence, Finding
from envdoctor.fleet.compared import Compared, compared
from envdoctor.fleet.hostlist import fold_names
from envdoctor.fleet.records import Clock, Failure, Group, How, NodeAnswer, NodeFacts
from envdoctor.fleet.words import FIX

CLOCK_SECONDS = 1.0  # tokens, certificates and rendezvous tolerate some seconds; NTP keeps a machine within 0.1 s
MOST_PACKAGE_SETS = 16  # kept to say which packages differ
MOST_PACKAGES_TOLD = 5
MOST_VALUES_TOLD = 6
ORDER = {"error": 0, "crashed": 0, "warning": 1, "unknown": 2, "info": 3}
Status = Literal["error", "warning", "info", "unknown"]
PREFIX: dict[How, str] = {
    "ssh": "ssh {node} ",
    "slurm": "srun --nodelist={node} ",
    "ray": "ssh {node} ",
    "recorded": "ssh {node} ",
}


class Tally:
    """What the nodes have said so far: per fact and value the nodes that have it, and no more."""

    def __init__(self, how: How, command: str = "envdoctor") -> None:
        self.how: How = how
        self.command = command
        self.nodes: list[str] = []
        self._values: dict[str, dict[str, list[str]]] = {}
        self._failures: dict[str, NodeAnswer] = {}
        self._without: dict[str, str] = {}  # nodes that have no envdoctor, and why
        self._own: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
        self._clocks: dict[str, Clock] = {}
        self._packages: dict[str, dict[str, str]] = {}

    def add(self, answer: NodeAnswer, facts: NodeFacts) -> None:
        """Take in one node."""
        node = answer.node
        self.nodes.append(node)
        if answer.failure:
            self._failures[node] = NodeAnswer(node=node, failure=answer.failure, message=answer.message)
        elif answer.message:
            self._without[node] = answer.message
        for fact, value in facts.facts.items():
            if value:
                self._values.setdefault(fact, {}).setdefault(value, []).append(node)
        for finding in facts.findings:
            words = finding.message
            self._own.setdefault((finding.id, words), (finding, []))[1].append(node)
        if facts.clock:
            self._clocks[node] = facts.clock
        digest = facts.facts.get("packages", "")
        if digest and len(self._packages) < MOST_PACKAGE_SETS:
            self._packages.setdefault(digest, facts.packages)

    @property
    def answered(self) -> int:
        """How many nodes gave an answer that could be read."""
        return len(self.nodes) - len(self._failures)

    def common(self) -> dict[str, str]:
        """What more than half of the nodes have, of each fact."""
        found = {fact: majority(values) for fact, values in self._values.items()}
        return {fact: value for fact, value in found.items() if value is not None}

    def clocks(self) -> dict[str, Clock]:
        """Offsets against the median of the fleet: a wrong clock here must not blame them all."""
        if not self._clocks:
            return {}
        middle = statistics.median(clock.offset for clock in self._clocks.values())
        return {
            node: Clock(round(clock.offset - middle, 3), clock.uncertainty)
            for node, clock in sorted(self._clocks.items())
        }

    def groups(self) -> tuple[Group, ...]:
        """Nodes that are alike, the most first, with what makes them differ."""
        differing: dict[str, dict[str, str]] = {node: {} for node in self.nodes}
        for fact, values in self._values.items():
            usual = majority(values)
            for value, nodes in values.items() if len(values) > 1 else ():
                for node in nodes if value != usual else ():
                    differing[node][fact] = value
        for node, clock in self.clocks().items():
            if _is_off(clock):
                differing[node]["clock"] = f"{clock.offset:+.1f} s"
        kinds: dict[tuple[object, ...], list[str]] = {}
        for node, differs in differing.items():
            failure = self._failures[node].failure if node in self._failures else ""
            without = "no envdoctor" if node in self._without else ""
            kinds.setdefault((failure or without, *sorted(differs.items())), []).append(node)
        ranked = sorted(kinds.values(), key=lambda nodes: (-len(nodes), nodes))
        return tuple(self._group(nodes, differing[nodes[0]]) for nodes in ranked)

    def _group(self, nodes: list[str], differs: dict[str, str]) -> Group:
        failed = self._failures.get(nodes[0])
        failure = failed.failure if failed else "no envdoctor" if nodes[0] in self._without else ""
        return Group(fold_names(nodes), len(nodes), dict(sorted(differs.items())), failure or "")

    def findings(self) -> tuple[Finding, ...]:
        """All of them, the gravest first."""
        found = [
            *self._silent(),
            *self._lacking(),
            *self._differing(),
            *self._skewed(),
            *self._of_nodes(),
            *self._everywhere(),
        ]
        return tuple(sorted(found, key=lambda finding: (ORDER.get(finding.status, 4), finding.id)))

    def _silent(self) -> list[Finding]:
        """Nodes without an answer, together where the reason is of one kind."""
        kinds: dict[Failure, list[NodeAnswer]] = {}
        for answer in self._failures.values():
            if answer.failure:
                kinds.setdefault(answer.failure, []).append(answer)
        return [self._failure(kind, answers) for kind, answers in kinds.items()]

    def _failure(self, kind: Failure, answers: list[NodeAnswer]) -> Finding:
        nodes = [answer.node for answer in answers]
        first = answers[0]
        more = f" (so says {first.node})" if len({answer.message for answer in answers}) > 1 else ""
        unreadable = kind in ("garbage", "flood")
        said = "answered what cannot be read" if unreadable else "did not answer"
        fix, command = FIX.get(kind, ("Run it there by hand.", "ssh {node} true"))
        place = {"node": first.node, "host": first.node.rpartition("@")[2], "command": self.command}
        words = f"{fold_names(nodes)} {said}, {kind}: {first.message}{more}; expected an answer of envdoctor check"
        return Finding(
            "FLT002" if unreadable else "FLT001", "node-unreachable", "error", words,
            (Evidence("nodes", fold_names(nodes), self.how), Evidence("failure", kind, first.message)), fix,
            (command.format(**place),),
        )  # fmt: skip

    def _lacking(self) -> list[Finding]:
        if not self._without:
            return []
        nodes = fold_names(self._without)
        node, why = next(iter(self._without.items()))
        words = f"{nodes}: {why}; only what a short probe and nvidia-smi tell is compared there"
        command = PREFIX[self.how].format(node=node) + "python3 -m pip install --user envdoctor"
        fix = "Install it there, or say with --command how it is started."
        return [
            Finding("FLT003", "wrong-python-env", "warning", words, (Evidence("nodes", nodes, why),), fix, (command,))
        ]

    def _differing(self) -> list[Finding]:
        """A finding for each fact in which nodes differ."""
        return [self._difference(fact, values) for fact, values in sorted(self._values.items()) if len(values) > 1]

    def _difference(self, fact: str, values: Mapping[str, list[str]]) -> Finding:
        row = compared(fact)
        usual = majority(values)
        ranked = sorted(values.items(), key=lambda item: -len(item[1]))
        evidence = tuple(Evidence(fact, value, fold_names(nodes)) for value, nodes in ranked[:MOST_VALUES_TOLD])
        if usual is None:
            split = "; ".join(f"{value} on {fold_names(nodes)}" for value, nodes in ranked[:MOST_VALUES_TOLD])
            words = f"{fact}: no majority, {len(values)} different values: {split}; expected one on all"
            odd = ranked[0][1][0]
        else:
            others = [(value, nodes) for value, nodes in ranked if value != usual]
            split = "; ".join(f"{value} on {fold_names(nodes)}" for value, nodes in others[:MOST_VALUES_TOLD])
            more = f" and {len(others) - MOST_VALUES_TOLD} more" if len(others) > MOST_VALUES_TOLD else ""
            words = f"{fact}: {split}{more}; expected {usual} as on {_count(len(values[usual]))}"
            odd = others[0][1][0]
            if fact == "packages":
                words += self._package_words(usual, others[0][0])
        return Finding(
            row.id, row.cause, row.severity, words, evidence, row.fix, (self._command(row, fact, odd, usual),)
        )

    def _package_words(self, usual: str, odd: str) -> str:
        """Which packages differ, as far as both sets are kept."""
        if usual not in self._packages or odd not in self._packages:
            return ""
        mine, theirs = self._packages[odd], self._packages[usual]
        names = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        told = [f"{name} {mine.get(name, 'none')} against {theirs.get(name, 'none')}" for name in names]
        more = f" and {len(told) - MOST_PACKAGES_TOLD} more" if len(told) > MOST_PACKAGES_TOLD else ""
        return f" ({', '.join(told[:MOST_PACKAGES_TOLD])}{more})"

    def _command(self, row: Compared, fact: str, node: str, usual: str | None) -> str:
        expected = usual or "VALUE"
        size = re.sub(r"\s*GiB.*", "G", expected)
        name = fact.removeprefix(row.fact)
        own = (
            row.command.replace("envdoctor", self.command, 1) if row.command.startswith("envdoctor") else row.command
        )
        return PREFIX[self.how].format(node=node) + own.format(node=node, expected=expected, size=size, name=name)

    def _skewed(self) -> list[Finding]:
        off = {node: clock for node, clock in self.clocks().items() if _is_off(clock)}
        if not off:
            return []
        ranked = sorted(off.items(), key=lambda item: -abs(item[1].offset))
        told = ", ".join(f"{node} by {clock.offset:+.1f} ± {clock.uncertainty:.2f} s" for node, clock in ranked[:6])
        more = f" and {len(ranked) - 6} more" if len(ranked) > 6 else ""
        among = _count(len(self._clocks))
        words = f"clock: {told}{more} off the median of {among}; expected within {CLOCK_SECONDS:.0f} s"
        evidence = tuple(Evidence("clock", f"{clock.offset:+.3f} s", node) for node, clock in ranked[:6])
        command = PREFIX[self.how].format(node=ranked[0][0]) + "sudo chronyc makestep"
        return [Finding("FLT030", "clock-skew", "error", words, evidence, "Let NTP set it.", (command,))]

    def _of_nodes(self) -> list[Finding]:
        """What is wrong on a node by itself, told once for all nodes that have it."""
        found = []
        for finding, nodes in self._own.values():
            folded = fold_names(nodes)
            evidence = (Evidence("nodes", folded, "envdoctor check"), *finding.evidence[1:])
            words = f"{folded}: {finding.message}"
            commands = tuple(finding.commands) or (PREFIX[self.how].format(node=nodes[0]) + "nvidia-smi -q",)
            found.append(
                Finding(
                    finding.id, finding.cause, finding.status, words, evidence, finding.fix, commands, finding.url
                )
            )
        return found

    def _everywhere(self) -> list[Finding]:
        """What no comparison shows, since it is wrong on every node."""
        found = []
        for fact, bad in (("hub", "not reached"), ("environment", "none")):
            values = self._values.get(fact, {})
            if set(values) == {bad}:
                row = compared(fact)
                words = f"{fact}: {bad} on all of {_count(len(values[bad]))}"
                evidence = (Evidence(fact, bad, fold_names(values[bad])),)
                command = self._command(row, fact, values[bad][0], None)
                found.append(Finding(row.id, row.cause, "info", words, evidence, row.fix, (command,)))
        return found


def majority(values: Mapping[str, list[str]]) -> str | None:
    """The value that more than half of the nodes have; None where there is none: two against two."""
    value = max(values, key=lambda each: len(values[each]))
    return value if 2 * len(values[value]) > sum(map(len, values.values())) else None


def _is_off(clock: Clock) -> bool:
    """Off for certain: beyond what the round trip leaves open."""
    return abs(clock.offset) - clock.uncertainty > CLOCK_SECONDS


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"
