"""Human output of `lock`, `export`, `facts check`, and the matrix of `resolve`."""

from __future__ import annotations

from envdoctor.commands.lock import LockOutcome, LockResult
from envdoctor.commands.resolve import Matrix, MatrixCell
from envdoctor.export import ExportedFile
from envdoctor.knowledge_check import FactsCheckResult
from envdoctor.output.console import err
from envdoctor.output.display import display
from envdoctor.output.text import Part, Text, Verbatim, indent, table

GOOD = {"made", "unchanged", "changed", "coherent"}
STYLES = {"partial": "warning", "unreachable": "unknown"}
CHANGES_SHOWN = 40


def render_locks(data: LockResult) -> list[Part]:
    """One line for each lock; below it the changes and the problems."""
    return [part for result in data.results for part in _locked(result)]


def _locked(result: LockOutcome) -> list[Part]:
    style = "ok" if result.outcome in GOOD else STYLES.get(result.outcome, "error")
    mark = {"ok": "✓", "warning": "!", "error": "✗", "unknown": "?"}[style]
    head = Text.assemble(
        (f"{mark} ", style), (result.profile, "title"), f"  {result.platform}  Python {result.python}  "
    )
    head.append(result.outcome, style=style)
    if result.packages:
        head.append(f", {result.packages} packages, {result.digest}")
    if result.download:
        head.append(f", {result.download / 1e9:.1f} GB of wheels")
    parts: list[Part] = [head]
    if result.without:
        parts.append(indent(Text(f"without {', '.join(result.without)}: only the PyTorch index has their build")))
    parts += [indent(Text(problem, style="error")) for problem in result.problems]
    parts += [indent(Text(change, style="dim")) for change in result.changes[:CHANGES_SHOWN]]
    if len(result.changes) > CHANGES_SHOWN:
        parts.append(indent(Text(f"and {len(result.changes) - CHANGES_SHOWN} more", style="dim")))
    return parts


def render_export(data: ExportedFile) -> list[Part]:
    """The exported text on stdout, notes on stderr."""
    err().print(*(Text.assemble(("note: ", "info"), note) for note in data.notes))
    return [Verbatim(data.text)]


def render_facts_check(data: FactsCheckResult) -> list[Part]:
    """One line for each table; below it the drifted rows and the rows that could not be compared."""
    parts: list[Part] = []
    for checked in data.tables:
        style = "error" if checked.drifted else "warning" if checked.failed_reads else "ok"
        parts.append(
            Text.assemble(
                ({"error": "✗ ", "warning": "! ", "ok": "✓ "}[style], style),
                (checked.table, "title"),
                f"  {checked.checked} rows agree, {len(checked.drifted)} drifted, {len(checked.new)} new releases",
            )
        )
        details = [
            f"{d.row}: {d.field} is {d.table_value} in the table, {d.index_value} in {d.source}"
            for d in checked.drifted
        ]
        details += [f"{n.package} {n.version} {n.uploaded} is new" for n in checked.new[:CHANGES_SHOWN]]
        details += [f"{u.rows} rows not derivable: {u.reason} ({u.source})" for u in checked.underivable]
        details += [f"{r.rows} rows not compared: {r.item}: {r.reason}" for r in checked.failed_reads]
        parts += [indent(Text(line, style="dim")) for line in details]
    summary = f"{data.requests} requests, {data.bytes >> 20} MiB, {data.seconds:.0f} s, from {data.index}"
    return [*parts, Text(summary, style="dim")]


def render_matrix(data: Matrix) -> list[Part]:
    """A table of machines and profiles; with --verbose the reasons of profiles that do not fit or have no lock."""
    profiles = list(dict.fromkeys(cell.profile for cell in data.cells))
    by_machine = {(cell.machine, cell.profile): cell for cell in data.cells}
    rows = table("machine", *profiles)
    for machine in dict.fromkeys(cell.machine for cell in data.cells):
        rows.add_row(Text(machine, style="title"), *(_cell(by_machine[machine, profile]) for profile in profiles))
    reasons = table("machine", "profile", "reason")
    for cell in data.cells:
        if cell.why and (cell.fits or display().verbose):
            reasons.add_row(cell.machine, cell.profile, Text("; ".join(cell.why)))
    legend = (
        "✓ fits, locked (* chosen); ! partial lock (no PyTorch index); ✗ no lock; - does not fit (reasons: --verbose)"
    )
    unusable = [Text.assemble(("✗ ", "error"), problem) for problem in data.unusable]
    parts: list[Part] = [rows, Text(legend, style="dim")]
    parts += [Text(), reasons] if reasons.rows else []
    return [*parts, *unusable]


def _cell(cell: MatrixCell) -> Text:
    if not cell.fits:
        return Text("-", style="dim")
    mark, style = {"locked": ("✓", "ok"), "partial": ("!", "warning"), "not locked": ("✗", "error")}[cell.locked]
    return Text(mark + ("*" if cell.chosen else ""), style=style)
