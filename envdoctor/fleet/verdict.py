"""What comes of a collective that has ended, one way or another. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from envdoctor.core.processes import Finished
from envdoctor.core.records import Evidence, Finding, Record
from envdoctor.fleet.hostlist import fold_names
from envdoctor.fleet.ranks import (
    Collective,
    Grade,
    RankShown,
    RankState,
    Speed,
    name_slow,
    name_slow_links,
    slowest,
)
from envdoctor.fleet.words import FIX, parse_failure
from envdoctor.knowledge.gpu_speeds import Measure, gpu_speeds

TABLE_SIZES: dict[str, Measure] = {"all_reduce 64 MiB": "allreduce_64mb", "all_reduce 1024 MiB": "allreduce_1gb"}
WORDS = {
    "missing": "never reported",
    "silent": "fell silent",
    "behind": "has not come to where the others wait",
}


class Ended(Record, frozen=True):
    """Why the watching ended, and who is to blame as far as is known."""

    why: Literal["done", "died", "stalled", "deadline"]
    stuck: dict[int, str]
    deaths: dict[int, str]
    failed: dict[str, tuple[Finished, str]]
    ranks: int


def conclude(  # noqa: PLR0917  each is another part of what happened
    how: Any, nodes: list[str], processes: int, states: Mapping[int, RankState], ended: Ended, seconds: float
) -> Collective:
    """The result with its findings."""
    place = {rank: nodes[rank // processes] for rank in range(ended.ranks)}
    known = [states[rank] for rank in sorted(states)]
    versions: dict[str, str] = next((state.versions for state in known if state.versions), {})
    slow = name_slow(states) if ended.why == "done" else {}
    verdicts = dict.fromkeys(slow, "slow") | ({} if ended.why == "done" else ended.stuck)
    if ended.deaths:  # whoever waits for the dead is not to blame
        verdicts = dict.fromkeys(ended.deaths, "dead")
    findings = [
        *_dead(ended, place, states), *_stuck(ended, place, states), *_not_started(ended),
        *_slow(slow, place, states), *_slow_links(states, place, ended), *_wrong(known, place),
        *_graded(_speeds(known, versions, len(nodes)), versions),
    ]  # fmt: skip
    return Collective(
        how=how,
        nodes=tuple(nodes),
        ranks=ended.ranks,
        backend=versions.get("backend", ""),
        interface=versions.get("interface", ""),
        transport=versions.get("transport", versions.get("network", "")),
        seconds=seconds,
        speeds=tuple(_speeds(known, versions, len(nodes))),
        shown=tuple(
            _shown(rank, place[rank], states.get(rank), verdicts.get(rank, "")) for rank in range(ended.ranks)
        ),
        findings=tuple(findings),
    )


def _shown(rank: int, node: str, state: RankState | None, verdict: str) -> RankShown:
    if state is None:
        return RankShown(rank, node, "never reported", 0.0, 0.0, verdict or "missing")
    return RankShown(rank, node, state.phase, round(state.own, 3), round(state.ring, 3), verdict)


def _rank(rank: int, place: Mapping[int, str], states: Mapping[int, RankState]) -> str:
    state = states.get(rank)
    return f"rank {rank} on {place[rank]}" + (f" (process {state.pid})" if state else "")


def _dead(ended: Ended, place: Mapping[int, str], states: Mapping[int, RankState]) -> list[Finding]:
    found = []
    for rank, how in ended.deaths.items():
        phase = states[rank].phase if rank in states else "its start"
        said = _last_error(ended.failed) if "exit code" in how else ""
        words = f"{_rank(rank, place, states)} is dead: {how}, at '{phase}'{said}; expected to reach the end"
        fix = "Look into the kernel's log there: killed by the OOM killer, a GPU that fell off, or somebody's kill."
        command = f"ssh {place[rank]} sudo dmesg --level=err,warn --ctime"
        evidence = (Evidence("rank", str(rank), place[rank]), Evidence("end", how, "torchrun"))
        found.append(Finding("FLT051", "node-unreachable", "error", words, evidence, fix, (command,)))
    return found


def _last_error(failed: Mapping[str, tuple[Finished, str]]) -> str:
    """The line that names an exception, of what the ranks printed: `RuntimeError: CUDA out of memory`."""
    lines = [line for _, tail in failed.values() for line in tail.splitlines()]
    found = [m[1] for line in lines if (m := re.search(r"((?:\w+\.)*\w+(?:Error|Exception|Warning): .*)", line))]
    own = [line for line in found if "ChildFailedError" not in line]
    return f", {own[0][:300]}" if own else ""


def _stuck(ended: Ended, place: Mapping[int, str], states: Mapping[int, RankState]) -> list[Finding]:
    """Ranks that hold the others up, where none is known to be dead."""
    if ended.why == "done" or ended.deaths or ended.failed:
        return []
    if not ended.stuck:
        phase = next(iter(states.values())).phase if states else "the start"
        words = f"all {ended.ranks} ranks wait at '{phase}'; expected the collective to end"
        fix = "The ranks reach each other's rendezvous and not each other: look at firewalls, MTU and the interface."
        command = "envdoctor fleet collective --interface NAME"
        seen = (Evidence("phase", phase, "ranks"),)
        return [Finding("FLT053", "nccl-interface", "error", words, seen, fix, (command,))]
    found = []
    for rank, kind in sorted(ended.stuck.items()):
        state = states.get(rank)
        phase = state.phase if state else "its start"
        ahead = max((one.step for one in states.values()), default=0)
        waiting = next((one.phase for one in states.values() if one.step == ahead), "")
        words = f"{_rank(rank, place, states)} {WORDS[kind]}: at '{phase}', the others wait at '{waiting}'"
        fix = "Look at what the process does there: it is stopped, sleeps, or waits for a disk."
        target = f"--pid {state.pid}" if state else "--help"
        command = f"ssh {place[rank]} sudo py-spy dump {target}"
        evidence = (Evidence("rank", str(rank), place[rank]), Evidence("phase", phase, "its own words"))
        found.append(Finding("FLT052", "node-unreachable", "error", words, evidence, fix, (command,)))
    return found


def _not_started(ended: Ended) -> list[Finding]:
    """Nodes whose starter failed where no dead rank explains it."""
    if ended.deaths or ended.why == "done":
        return []
    found = []
    for node, (done, tail) in ended.failed.items():
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        kind, said = parse_failure(tail) or ("crashed", lines[-1][:300] if lines else done.ending)
        fix, command = FIX.get(kind, FIX["crashed"])
        command = "ssh {node} true" if kind == "crashed" else command
        words = f"{node} could not run its ranks, {kind}: {said}"
        evidence = (Evidence("nodes", node, done.ending),)
        host = node.rpartition("@")[2]
        commands = (command.format(node=node, host=host, command="envdoctor"),)
        found.append(Finding("FLT050", "node-unreachable", "error", words, evidence, fix, commands))
    return found


def _slow(slow: Mapping[int, float], place: Mapping[int, str], states: Mapping[int, RankState]) -> list[Finding]:
    found = []
    for rank, factor in slow.items():
        words = (
            f"{_rank(rank, place, states)} is {factor:.1f} times slower than most in work that waits for nobody: "
            f"{states[rank].own:.2f} s"
        )
        fix = "Look at its clocks and at what else runs there: every step waits for it."
        command = f"ssh {place[rank]} nvidia-smi -q -d PERFORMANCE"
        evidence = (Evidence("own work", f"{states[rank].own:.2f} s", place[rank]),)
        found.append(Finding("FLT054", "gpu-throttled", "error", words, evidence, fix, (command,)))
    return found


def _slow_links(states: Mapping[int, RankState], place: Mapping[int, str], ended: Ended) -> list[Finding]:
    """Links between nodes alone: within a node the way is its memory, which own work already tells."""
    found = []
    for rank, factor in (name_slow_links(states) if ended.why == "done" else {}).items():
        other = (rank + 1) % ended.ranks
        if place[rank] == place[other]:
            continue
        words = (
            f"the way from rank {rank} on {place[rank]} to rank {other} on {place[other]} is {factor:.1f} times "
            f"slower than most: {states[rank].ring:.2f} GB/s"
        )
        evidence = (Evidence("ring", f"{states[rank].ring:.2f} GB/s", place[rank]),)
        fix = "Look at the cable, the port and the MTU of both."
        commands = (f"envdoctor fleet check --hosts {place[rank]},{place[other]}",)
        found.append(Finding("FLT055", "nccl-interface", "warning", words, evidence, fix, commands))
    return found


def _wrong(known: list[RankState], place: Mapping[int, str]) -> list[Finding]:
    bad = [state for state in known if state.wrong]
    if not bad:
        return []
    count = sum(state.wrong for state in bad)
    where = fold_names(place[state.rank] for state in bad)
    words = f"{count} elements came out wrong on {where}; expected exact sums"
    evidence = (Evidence("wrong elements", str(count), where),)
    fix = "Do not train there: memory or a link corrupts data."
    return [Finding("FLT056", "silent-wrong-result", "error", words, evidence, fix, ("envdoctor verify",))]


def _speeds(known: list[RankState], versions: Mapping[str, str], nodes: int) -> list[Speed]:
    """The slowest rank's numbers; graded where they are of GPUs of one machine that the table knows."""
    rows = gpu_speeds(versions["gpu"]) if nodes == 1 and "gpu" in versions else {}
    speeds = []
    for name, value in slowest(known).items():
        row = rows.get(TABLE_SIZES[name]) if name in TABLE_SIZES else None
        grade: Grade = "unknown"
        if row and row.typical:
            grade = "healthy" if value >= row.healthy_from else "slow" if value >= row.failing_below else "failing"
        speeds.append(
            Speed(name, round(value, 3), grade, round(row.healthy_from, 1) if row and row.typical else None)
        )
    return speeds


def _graded(speeds: list[Speed], versions: Mapping[str, str]) -> list[Finding]:
    found = []
    for speed in speeds:
        if speed.grade not in ("slow", "failing"):
            continue
        words = f"{speed.name}: {speed.value:.0f} GB/s bus bandwidth; expected {speed.healthy_from:.0f} or more"
        way = re.sub(r"\s+", " ", versions.get("transport", "a transport that NCCL does not name"))
        status: Literal["warning", "error"] = "error" if speed.grade == "failing" else "warning"
        evidence = (Evidence("transport", way, "NCCL_DEBUG=INFO"),)
        fix = "Look whether NVLink is up and peer access allowed."
        found.append(
            Finding("FLT057", "silent-slow-path", status, words, evidence, fix, ("nvidia-smi nvlink --status",))
        )
    return found
