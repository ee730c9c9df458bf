"""Fleet results for people: groups of equal nodes with their differences, the findings, and a verdict."""

from __future__ import annotations

from envdoctor.fleet.ranks import CollectiveResult
from envdoctor.fleet.records import FleetCheckResult, Group
from envdoctor.output.findings import findings_lines
from envdoctor.output.text import Part, Text, count, table

HEADLINE_FACTS = ("GPUs", "driver", "torch", "NCCL", "python", "InfiniBand")
MAX_DIFFERENCES = 6
MAX_ROWS = 40
GRADES = {"healthy": "ok", "slow": "warning", "failing": "error", "unknown": "unknown"}


def render_fleet_check(data: FleetCheckResult) -> list[Part]:
    """Render the majority's facts, the groups, the findings, and a verdict."""
    head = Text.assemble(
        ("Fleet", "title"),
        f"  {count(data.nodes, 'node')} ({data.method}), {data.answered} responded, {data.seconds} s",
    )
    common_facts = ", ".join(
        f"{fact} {data.common[fact]}" for fact in HEADLINE_FACTS if data.common.get(fact, "none") != "none"
    )
    parts: list[Part] = [
        head,
        *([Text(f"most nodes have: {common_facts}", style="dim")] if common_facts else []),
        _groups(data),
    ]
    if len(data.groups) > MAX_ROWS:
        parts.append(Text(f"and {len(data.groups) - MAX_ROWS} more groups: --format json has them all", style="dim"))
    counts = {status: sum(f.status == status for f in data.findings) for status in ("error", "warning", "info")}
    summary = ", ".join(
        f"{count} {status}{'s' * (count > 1 and status != 'info')}" for status, count in counts.items() if count
    )
    mark = ("✗ ", "error") if counts["error"] else ("! ", "warning") if counts["warning"] else ("✓ ", "ok")
    return [*parts, *findings_lines(data.findings), Text.assemble(mark, summary or "all nodes are equal")]


def _groups(data: FleetCheckResult) -> Part:
    rows = table("nodes", "count", "differences from the majority")
    for group in data.groups[:MAX_ROWS]:
        rows.add_row(Text(group.nodes), str(group.count), _differences(group))
    return rows


def _differences(group: Group) -> Text:
    if group.failure and group.failure != "no envdoctor":
        return Text.assemble((f"✗ {group.failure}", "error"))
    shown = list(group.differences.items())[:MAX_DIFFERENCES]
    parts = [Text.assemble(f"{fact} ", (value, "warning")) for fact, value in shown]
    if group.failure:
        parts.insert(0, Text(group.failure, style="warning"))
    if len(group.differences) > MAX_DIFFERENCES:
        parts.append(Text(f"{len(group.differences) - MAX_DIFFERENCES} more", style="dim"))
    return Text(", ").join(parts) if parts else Text("none", style="ok")


def render_collective(data: CollectiveResult) -> list[Part]:
    """Render the speeds, the ranks, the findings, and a verdict."""
    network = ", ".join(
        part for part in (data.backend, data.interface and f"over {data.interface}", data.transport) if part
    )
    head = Text.assemble(
        ("Collective", "title"),
        f"  {count(data.ranks, 'rank')} on {count(len(data.nodes), 'node')} ({data.method}), {data.seconds} s",
        f"  {network}",
    )
    parts: list[Part] = [head]
    if data.speeds:
        rows = table("collective", "bus bandwidth", "healthy from", "grade")
        for speed in data.speeds:
            healthy = "not known" if speed.healthy_from is None else f"{speed.healthy_from} GB/s"
            rows.add_row(speed.name, f"{speed.value:.2f} GB/s", healthy, Text(speed.grade, style=GRADES[speed.grade]))
        parts.append(rows)
    ranks = table("rank", "node", "computation", "to the next rank", "phase")
    for result in data.rank_results[:MAX_ROWS]:
        seconds = f"{result.compute_seconds:.2f} s" if result.compute_seconds else "-"
        ring = f"{result.ring_speed:.2f} GB/s" if result.ring_speed else "-"
        verdict = Text.assemble(result.phase, (f"  ✗ {result.verdict}", "error") if result.verdict else "")
        ranks.add_row(str(result.rank), result.node, seconds, ring, verdict)
    verdict = (
        Text.assemble(("✗ ", "error"), "see the findings")
        if data.findings
        else Text("✓ all ranks are equal", style="ok")
    )
    return [*parts, ranks, *findings_lines(data.findings), verdict]
