"""Locks and the matrix of profiles and machines for people."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from envdoctor.commands.lock import LockOutcome, LockResult
from envdoctor.commands.resolve import Matrix, MatrixCell
from envdoctor.export import ExportedFile
from envdoctor.knowledge_check import FactsChecked
from envdoctor.output.console import err, out, table

GOOD = {"made", "unchanged", "changed", "coherent"}
CHANGES_SHOWN = 40


def locked_all(data: LockResult) -> list[RenderableType]:
    """Each lock in a line, with what changed and what is wrong below it."""
    return [part for result in data.results for part in _locked(result)]


def _locked(result: LockOutcome) -> list[RenderableType]:
    style = "ok" if result.outcome in GOOD else "warning" if result.outcome == "partial" else "error"
    mark = {"ok": "✓", "warning": "!", "error": "✗"}[style]
    head = Text.assemble(
        (f"{mark} ", style), (result.profile, "title"), f"  {result.platform}  Python {result.python}  "
    )
    head.append(result.outcome, style=style)
    if result.packages:
        head.append(f", {result.packages} packages, {result.digest}")
    if result.download:
        head.append(f", {result.download / 1e9:.1f} GB of wheels")
    parts: list[RenderableType] = [head]
    if result.without:
        parts.append(_indent(Text(f"without {', '.join(result.without)}: only the PyTorch index has their build")))
    parts += [_indent(Text(problem, style="error")) for problem in result.problems]
    parts += [_indent(Text(change, style="dim")) for change in result.changes[:CHANGES_SHOWN]]
    if len(result.changes) > CHANGES_SHOWN:
        parts.append(_indent(Text(f"and {len(result.changes) - CHANGES_SHOWN} more", style="dim")))
    return parts


def exported(data: ExportedFile) -> list[RenderableType]:
    """The text itself on stdout, what is to be known of it on stderr."""
    out().print(Text(data.text), soft_wrap=True, end="")
    for note in data.notes:
        err().print(Text.assemble(("note: ", "info"), note))
    return []


def facts_checked(data: FactsChecked) -> list[RenderableType]:
    """Each table in a line, what drifted and what was left open below it."""
    parts: list[RenderableType] = []
    for checked in data.tables:
        style = "error" if checked.drifted else "warning" if checked.failed_reads else "ok"
        parts.append(
            Text.assemble(
                ({"error": "✗ ", "warning": "! ", "ok": "✓ "}[style], style),
                (checked.table, "title"),
                f"  {checked.checked} rows agree, {len(checked.drifted)} drifted, {len(checked.new)} new releases",
            )
        )
        told = [
            f"{d.row}: {d.field} is {d.table_value} in the table, {d.index_value} in {d.source}"
            for d in checked.drifted
        ]
        told += [f"{n.package} {n.version} {n.uploaded} is new" for n in checked.new[:CHANGES_SHOWN]]
        told += [f"{u.rows} rows not derivable: {u.reason} ({u.source})" for u in checked.underivable]
        told += [f"{r.rows} rows not compared: {r.item}: {r.reason}" for r in checked.failed_reads]
        parts += [_indent(Text(line, style="dim")) for line in told]
    read = f"{data.requests} requests, {data.bytes >> 20} MiB, {data.seconds:.0f} s, from {data.index}"
    return [*parts, Text(read, style="dim")]


def matrix(data: Matrix) -> list[RenderableType]:
    """Machines down, profiles across; below it why what does not fit does not."""
    profiles = list(dict.fromkeys(cell.profile for cell in data.cells))
    by_place = {(cell.machine, cell.profile): cell for cell in data.cells}
    rows = table("machine", *profiles)
    for machine in dict.fromkeys(cell.machine for cell in data.cells):
        rows.add_row(Text(machine, style="title"), *(_cell(by_place[machine, profile]) for profile in profiles))
    reasons = table("machine", "profile", "why")
    for cell in data.cells:
        if cell.why:
            reasons.add_row(cell.machine, cell.profile, Text("; ".join(cell.why)))
    legend = "✓ fits, locked (* chosen); ! locked but for what only the PyTorch index has; ✗ no lock; - does not fit"
    unusable = [Text.assemble(("✗ ", "error"), told) for told in data.unusable]
    return [rows, Text(legend, style="dim"), Text(), reasons, *unusable]


def _cell(cell: MatrixCell) -> Text:
    if not cell.fits:
        return Text("-", style="dim")
    mark, style = {"locked": ("✓", "ok"), "partial": ("!", "warning"), "not locked": ("✗", "error")}[cell.locked]
    return Text(mark + ("*" if cell.chosen else ""), style=style)


def _indent(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 4), expand=False)
