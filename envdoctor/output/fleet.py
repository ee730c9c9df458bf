"""A fleet for people: nodes that are alike in one line, what differs beside them, then the findings."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from envdoctor.fleet.ranks import Collective
from envdoctor.fleet.records import FleetChecked, Group
from envdoctor.output.check import findings_lines
from envdoctor.output.console import table

HEAD = ("GPUs", "driver", "torch", "NCCL", "python", "InfiniBand")
MOST_TOLD = 6
MOST_ROWS = 40
GRADES = {"healthy": "ok", "slow": "warning", "failing": "error", "unknown": "unknown"}


def fleet_checked(data: FleetChecked) -> list[RenderableType]:
    """What most nodes have, the groups, the findings, and a verdict."""
    head = Text.assemble(
        ("Fleet", "title"), f"  {data.nodes} nodes by {data.how}, {data.answered} answered, {data.seconds} s"
    )
    usual = ", ".join(f"{fact} {data.common[fact]}" for fact in HEAD if data.common.get(fact, "none") != "none")
    parts: list[RenderableType] = [
        head,
        *([Text(f"most have: {usual}", style="dim")] if usual else []),
        _groups(data),
    ]
    if len(data.groups) > MOST_ROWS:
        parts.append(Text(f"and {len(data.groups) - MOST_ROWS} more groups: --format json has them all", style="dim"))
    return [*parts, *findings_lines(data.findings), _verdict(data)]


def _groups(data: FleetChecked) -> RenderableType:
    rows = table("nodes", "count", "what differs from most")
    for group in data.groups[:MOST_ROWS]:
        rows.add_row(Text(group.nodes), str(group.count), _differs(group))
    return rows


def _differs(group: Group) -> Text:
    if group.failure and group.failure != "no envdoctor":
        return Text.assemble((f"✗ {group.failure}", "error"))
    told = [Text.assemble(f"{fact} ", (value, "warning")) for fact, value in list(group.differs.items())[:MOST_TOLD]]
    if group.failure:
        told.insert(0, Text(group.failure, style="warning"))
    if len(group.differs) > MOST_TOLD:
        told.append(Text(f"{len(group.differs) - MOST_TOLD} more", style="dim"))
    return Text(", ").join(told) if told else Text("nothing", style="ok")


def _verdict(data: FleetChecked) -> Text:
    counts = {status: sum(f.status == status for f in data.findings) for status in ("error", "warning", "info")}
    told = ", ".join(
        f"{count} {status}{'s' * (count > 1 and status != 'info')}" for status, count in counts.items() if count
    )
    mark = ("✗ ", "error") if counts["error"] else ("! ", "warning") if counts["warning"] else ("✓ ", "ok")
    return Text.assemble(mark, told or "every node is alike")


def collective(data: Collective) -> list[RenderableType]:
    """Speeds, the ranks that stand out, the findings, and a verdict."""
    way = ", ".join(
        part for part in (data.backend, data.interface and f"over {data.interface}", data.transport) if part
    )
    head = Text.assemble(
        ("Collective", "title"),
        f"  {data.ranks} ranks on {len(data.nodes)} nodes by {data.how}, {data.seconds} s",
        f"  {way}",
    )
    parts: list[RenderableType] = [head]
    if data.speeds:
        rows = table("collective", "bus bandwidth", "healthy from", "grade")
        for speed in data.speeds:
            healthy = "not known" if speed.healthy_from is None else f"{speed.healthy_from} GB/s"
            rows.add_row(speed.name, f"{speed.value:.2f} GB/s", healthy, Text(speed.grade, style=GRADES[speed.grade]))
        parts.append(rows)
    ranks = table("rank", "node", "own work", "to the next", "stands at")
    for shown in data.shown[:MOST_ROWS]:
        own, ring = f"{shown.own:.2f} s" if shown.own else "-", f"{shown.ring:.2f} GB/s" if shown.ring else "-"
        verdict = Text.assemble(shown.phase, (f"  ✗ {shown.verdict}", "error") if shown.verdict else "")
        ranks.add_row(str(shown.rank), shown.node, own, ring, verdict)
    verdict = (
        Text.assemble(("✗ ", "error"), "a rank holds the others up")
        if data.findings
        else Text("✓ all ranks are alike", style="ok")
    )
    return [*parts, ranks, *findings_lines(data.findings), verdict]
