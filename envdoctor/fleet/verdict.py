"""The verdict on a collective that has ended: its result and findings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from envdoctor.core.processes import CompletedProcess
from envdoctor.core.record import Record
from envdoctor.core.records import Evidence, Finding
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.fleet.failures import FIXES, classify_failure
from envdoctor.fleet.host_list import format_host_list
from envdoctor.fleet.ranks import (
    CollectiveResult,
    Grade,
    Method,
    RankResult,
    RankState,
    Speed,
    find_slow_links,
    find_slow_ranks,
    slowest_speeds,
)
from envdoctor.fleet.records import fill_command, on_node
from envdoctor.knowledge.gpu_speeds import Measure, gpu_speeds

TABLE_SIZES: dict[str, Measure] = {"all_reduce 64 MiB": "allreduce_64mb", "all_reduce 1024 MiB": "allreduce_1gb"}
BLOCKING = {
    "missing": "never reported",
    "silent": "stopped reporting",
    "behind": "has not reached the step in which the others wait",
}


class Ending(Record, frozen=True):
    """How a collective ended, and the ranks and nodes that are responsible as far as is known."""

    reason: Literal["done", "died", "stalled", "deadline"]
    blocking: dict[int, str]
    deaths: dict[int, str]
    failed: dict[str, tuple[CompletedProcess, str]]  # process and last output by node
    ranks: int


def build_result(  # noqa: PLR0917  each is a part of the result
    method: Method, nodes: list[str], processes: int, states: Mapping[int, RankState],
    ending: Ending, seconds: float,
) -> CollectiveResult:  # fmt: skip
    """Return the result with its findings. `processes`: per node."""
    node_of = {rank: nodes[rank // processes] for rank in range(ending.ranks)}
    ordered = [states[rank] for rank in sorted(states)]
    versions: dict[str, str] = next((state.versions for state in ordered if state.versions), {})
    speeds = _grade_speeds(ordered, versions, len(nodes))
    done = ending.reason == "done"
    slow = find_slow_ranks(states) if done else {}
    verdicts = dict.fromkeys(slow, "slow") | ({} if done else ending.blocking)
    if ending.deaths:  # the other ranks only wait for the dead ones
        verdicts = dict.fromkeys(ending.deaths, "dead")
    findings = [
        *_dead_ranks(ending, node_of, states, method), *_blocking_ranks(ending, node_of, states, method),
        *_failed_nodes(ending), *_slow_ranks(slow, node_of, states, method), *_slow_links(states, node_of, ending),
        *_wrong_values(ordered, node_of, method), *_slow_collectives(speeds, versions, on_node(method, nodes[0], "")),
    ]  # fmt: skip
    return CollectiveResult(
        method=method,
        nodes=tuple(nodes),
        ranks=ending.ranks,
        backend=versions.get("backend", ""),
        interface=versions.get("interface", ""),
        transport=versions.get("transport", versions.get("network", "")),
        seconds=seconds,
        speeds=tuple(speeds),
        rank_results=tuple(
            _rank_result(rank, node_of[rank], states.get(rank), verdicts.get(rank, ""))
            for rank in range(ending.ranks)
        ),
        findings=tuple(findings),
    )


def _rank_result(rank: int, node: str, state: RankState | None, verdict: str) -> RankResult:
    if state is None:
        return RankResult(rank, node, "never reported", 0.0, 0.0, verdict or "missing")
    return RankResult(rank, node, state.phase, round(state.compute_seconds, 3), round(state.ring_speed, 3), verdict)


def _rank_label(rank: int, node_of: Mapping[int, str], states: Mapping[int, RankState]) -> str:
    state = states.get(rank)
    return f"rank {rank} on {node_of[rank]}" + (f" (process {state.pid})" if state else "")


def _dead_ranks(
    ending: Ending, node_of: Mapping[int, str], states: Mapping[int, RankState], method: str
) -> list[Finding]:
    findings = []
    for rank, cause in ending.deaths.items():
        phase = states[rank].phase if rank in states else "start"
        error = _last_exception(ending.failed) if "exit code" in cause else ""
        label = _rank_label(rank, node_of, states)
        message = f"{label} is dead: {cause}, at '{phase}'{error}; expected to reach the end"
        fix = "Check the node's kernel log: the OOM killer, a GPU that fell off the bus, or a kill by a user."
        command = on_node(method, node_of[rank], "sudo dmesg --level=err,warn --ctime")
        evidence = (Evidence("rank", str(rank), node_of[rank]), Evidence("end", cause, "torchrun"))
        findings.append(Finding("FLT051", "node-unreachable", "error", message, evidence, fix, steps(command)))
    return findings


def _last_exception(failed: Mapping[str, tuple[CompletedProcess, str]]) -> str:
    """Return the first exception in the ranks' last output: `, RuntimeError: CUDA out of memory`."""
    lines = [line for _, output in failed.values() for line in output.splitlines()]
    pattern = r"((?:\w+\.)*\w+(?:Error|Exception|Warning): .*)"
    exceptions = [match[1] for line in lines if (match := re.search(pattern, line))]
    of_ranks = [line for line in exceptions if "ChildFailedError" not in line]
    return f", {of_ranks[0][:300]}" if of_ranks else ""


def _blocking_ranks(
    ending: Ending, node_of: Mapping[int, str], states: Mapping[int, RankState], method: str
) -> list[Finding]:
    """Report the ranks that block the others, unless dead ranks or failed nodes explain it."""
    if ending.reason == "done" or ending.deaths or ending.failed:
        return []
    if not ending.blocking:
        phase = next(iter(states.values())).phase if states else "the start"
        message = f"all {ending.ranks} ranks wait at '{phase}'; expected the collective to end"
        fix = "The ranks reach the rendezvous and not each other: check firewalls, MTU and the interface."
        command = "envdoctor fleet collective --interface NAME"
        evidence = (Evidence("phase", phase, "ranks"),)
        return [Finding("FLT053", "nccl-interface", "error", message, evidence, fix, steps(command))]
    findings = []
    last_step = max((state.step for state in states.values()), default=0)
    waiting = next((state.phase for state in states.values() if state.step == last_step), "")
    for rank, kind in sorted(ending.blocking.items()):
        state, label = states.get(rank), _rank_label(rank, node_of, states)
        phase = state.phase if state else "start"
        message = f"{label} {BLOCKING[kind]}: at '{phase}', the others wait at '{waiting}'"
        fix = "Check what the process does: it is stopped, sleeps, or waits for a disk."
        pid = state.pid if state else 0
        examine = (f"ps -o pid,stat,wchan:20,etime,args -p {pid}", shell_command("sudo py-spy dump --pid {}", pid))
        commands = [on_node(method, node_of[rank], each) for each in (examine if pid else ("pgrep -af torchrun",))]
        facts = (Evidence("rank", str(rank), node_of[rank]), Evidence("phase", phase, "the rank's output"))
        findings.append(Finding("FLT052", "node-unreachable", "error", message, facts, fix, steps(*commands)))
    return findings


def _failed_nodes(ending: Ending) -> list[Finding]:
    """Report the nodes whose processes failed where no dead rank explains it."""
    if ending.deaths or ending.reason == "done":
        return []
    findings = []
    for node, (done, output) in ending.failed.items():
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        kind, reason = classify_failure(output) or ("crashed", lines[-1][:300] if lines else done.ending)
        fix, command = FIXES[kind]
        command = "ssh {node} true" if kind == "crashed" else command
        message = f"{node} could not run its ranks, {kind}: {reason}"
        evidence = (Evidence("nodes", node, done.ending),)
        remedies = steps(fill_command(command, node=node, host=node.rpartition("@")[2], command="envdoctor"))
        findings.append(Finding("FLT050", "node-unreachable", "error", message, evidence, fix, remedies))
    return findings


def _slow_ranks(
    slow: Mapping[int, float], node_of: Mapping[int, str], states: Mapping[int, RankState], method: str
) -> list[Finding]:
    findings = []
    for rank, factor in slow.items():
        seconds = f"{states[rank].compute_seconds:.2f} s"
        label = _rank_label(rank, node_of, states)
        message = f"{label} is {factor:.1f} times slower than most in computation without communication: {seconds}"
        fix = "Check its clocks and the other processes on the node: every training step waits for this rank."
        command = on_node(method, node_of[rank], "nvidia-smi -q -d PERFORMANCE,PIDS")
        evidence = (Evidence("computation", seconds, node_of[rank]),)
        findings.append(Finding("FLT054", "gpu-throttled", "error", message, evidence, fix, steps(command)))
    return findings


def _slow_links(states: Mapping[int, RankState], node_of: Mapping[int, str], ending: Ending) -> list[Finding]:
    """Report slow links between nodes. Within a node the link is its memory, which the computation also measures."""
    findings = []
    for rank, factor in (find_slow_links(states) if ending.reason == "done" else {}).items():
        other = (rank + 1) % ending.ranks
        if node_of[rank] == node_of[other]:
            continue
        speed = f"{states[rank].ring_speed:.2f} GB/s"
        message = (
            f"the link from rank {rank} on {node_of[rank]} to rank {other} on {node_of[other]} is {factor:.1f} times "
            f"slower than most: {speed}"
        )
        evidence = (Evidence("ring", speed, node_of[rank]),)
        fix = "Check the cable, the port and the MTU of both nodes."
        remedies = steps(shell_command("envdoctor fleet check --hosts {},{}", node_of[rank], node_of[other]))
        findings.append(Finding("FLT055", "nccl-interface", "warning", message, evidence, fix, remedies))
    return findings


def _wrong_values(states: list[RankState], node_of: Mapping[int, str], method: str) -> list[Finding]:
    wrong = [state for state in states if state.wrong]
    if not wrong:
        return []
    count = sum(state.wrong for state in wrong)
    nodes = format_host_list(node_of[state.rank] for state in wrong)
    message = f"{count} elements have wrong values on {nodes}; expected exact sums"
    evidence = (Evidence("wrong elements", str(count), nodes),)
    fix = "Do not train on these nodes: memory or a link corrupts data."
    command = on_node(method, node_of[wrong[0].rank], "envdoctor verify")
    return [Finding("FLT056", "silent-wrong-result", "error", message, evidence, fix, steps(command))]


def _grade_speeds(states: list[RankState], versions: Mapping[str, str], nodes: int) -> list[Speed]:
    """Return the slowest rank's speeds, graded for GPUs of one machine that the built-in table contains."""
    rows = gpu_speeds(versions["gpu"]) if nodes == 1 and "gpu" in versions else {}
    speeds = []
    for name, value in slowest_speeds(states).items():
        row = rows.get(TABLE_SIZES[name]) if name in TABLE_SIZES else None
        grade: Grade = "unknown"
        healthy_from = None
        if row and row.typical:
            grade = "healthy" if value >= row.healthy_from else "slow" if value >= row.failing_below else "failing"
            healthy_from = round(row.healthy_from, 1)
        speeds.append(Speed(name, round(value, 3), grade, healthy_from))
    return speeds


def _slow_collectives(speeds: list[Speed], versions: Mapping[str, str], starter: str) -> list[Finding]:
    findings = []
    for speed in speeds:
        if speed.grade not in ("slow", "failing"):
            continue
        message = f"{speed.name}: {speed.value:.0f} GB/s bus bandwidth; expected {speed.healthy_from:.0f} or more"
        transport = re.sub(r"\s+", " ", versions.get("transport", "not reported by NCCL"))
        status: Literal["warning", "error"] = "error" if speed.grade == "failing" else "warning"
        evidence = (Evidence("transport", transport, "NCCL_DEBUG=INFO"),)
        fix = "Check that NVLink is up and that peer access is permitted."
        remedies = steps(f"{starter}nvidia-smi nvlink --status", f"{starter}nvidia-smi topo -p2p r")
        findings.append(Finding("FLT057", "silent-slow-path", status, message, evidence, fix, remedies))
    return findings
