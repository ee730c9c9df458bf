"""Renderer of `envdoctor move`: what stays, what changes, what is lost and why."""

from __future__ import annotations

from envdoctor.commands.move import MoveResult
from envdoctor.output.display import display
from envdoctor.output.findings import finding_lines
from envdoctor.output.text import Part, Text, command, count, indent, table

CODE = {"native": ("✓", "ok"), "ptx": ("!", "warning"), "none": ("✗", "error"), "unknown": ("?", "unknown")}
SHOWN_KEPT = 12


def render_move(data: MoveResult) -> list[Part]:
    """The verdict, torch, then the packages by what happens to them."""
    moved = data.move
    place = f"{data.target} ({data.platform}, Python {data.python})"
    if moved.lock is None:
        title = f" has no solution for {place}"
        if moved.unreachable:
            title = f" was not solved for {place}: a package source was not reachable"
        mark, style = ("?", "unknown") if moved.unreachable else ("✗", "error")
        parts: list[Part] = [Text.assemble((f"{mark} ", style), (data.source, "title"), title)]
        return [*parts, indent(Text(moved.reason)), *_lost(data)]
    partial = moved.lock.without
    doubtful = partial or any(row.state == "none" for row in data.code)
    mark, style = ("!", "warning") if doubtful else ("✓", "ok")
    numbers = f"{len(moved.kept)} stay, {len(moved.changed)} change, {len(moved.lost)} are lost"
    parts = [Text.assemble((f"{mark} ", style), (data.source, "title"), f" on {place}: {numbers}")]
    if moved.torch_after:
        parts.append(Text(f"  torch {moved.torch_before or 'unknown'} -> {moved.torch_after}"))
    if moved.exclude_newer:
        parts.append(Text(f"  other packages as of {moved.exclude_newer}, when the guide was written", style="dim"))
    if partial:
        omitted = ", ".join(partial)
        parts.append(indent(Text(f"without {omitted}: the PyTorch index was not reachable; lock again where it is")))
    parts += _libraries(data) + _changed(data) + _lost(data)
    kept = moved.kept if display().verbose else moved.kept[:SHOWN_KEPT]
    more = f" and {len(moved.kept) - len(kept)} more" if len(moved.kept) > len(kept) else ""
    parts += [Text("\nStay", style="title"), indent(Text(", ".join(kept) + more))] if kept else []
    if data.code:
        parts.append(Text("\nGPU code", style="title"))
        for row in data.code:
            row_mark, row_style = CODE[row.state]
            parts.append(Text.assemble((f"  {row_mark} ", row_style), f"{row.name}  {row.state}: {row.detail}"))
    parts += [Text("\nFindings", style="title")] if data.findings else []
    parts += [line for finding in data.findings for line in finding_lines(finding, details=display().verbose)]
    parts += [Text.assemble(("\n✓ ", "ok"), f"wrote {data.written}")] if data.written else []
    return [*parts, *(indent(command(line), 2) for line in data.install)]


def _changed(data: MoveResult) -> list[Part]:
    if not data.move.changed:
        return []
    rows = table("package", "before", "after", "why")
    for change in data.move.changed:
        rows.add_row(change.name, change.before, change.after, change.why)
    return [Text(f"\n{count(len(data.move.changed), 'version')} change", style="title"), rows]


def _lost(data: MoveResult) -> list[Part]:
    if not data.move.lost:
        return []
    rows = table("package", "version", "why")
    for lost in data.move.lost:
        rows.add_row(lost.name, lost.version, lost.why)
    return [Text(f"\n{count(len(data.move.lost), 'package')} lost", style="title"), rows]


def _libraries(data: MoveResult) -> list[Part]:
    """CUDA libraries of the old build of torch, which need no replacement."""
    number = len(data.move.libraries)
    text = f"{count(number, 'package')} of the old torch build (CUDA libraries): the new torch brings its own"
    return [indent(Text(text, style="dim"), 2)] if number else []
