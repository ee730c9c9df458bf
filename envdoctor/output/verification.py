"""Renderer of `envdoctor verify`: the probes, their output where they failed, and the verdict."""

from __future__ import annotations

from envdoctor.core.records import Verification
from envdoctor.output.text import Part, Text, indent, table

OUTCOME_STYLES = {"passed": "ok", "unavailable": "info"}
MAX_OUTPUT = 600  # last characters of a failed probe's output


def render_verification(data: Verification) -> list[Part]:
    """The table of probes, details of failed ones, and the verdict."""
    rows = table("probe", "outcome", "s", "result")
    details: list[Part] = []
    for result in data.results:
        style = OUTCOME_STYLES.get(result.outcome, "error")
        rows.add_row(result.probe, Text(result.outcome, style=style), f"{result.seconds:.1f}", result.message)
        if result.output and result.outcome not in OUTCOME_STYLES:
            details.append(indent(Text(f"{result.probe}: {result.output.strip()[-MAX_OUTPUT:]}", style="dim")))
    details += [indent(Text(f"{result.probe}: {result.cause}")) for result in data.results if result.cause]
    if data.attention:
        details.append(Text(f"attention that passed, best first: {', '.join(data.attention)}", style="dim"))
    return [rows, *details, _verdict(data)]


def _verdict(data: Verification) -> Text:
    verdict = (
        Text.assemble(("✓ ", "ok"), "verified") if data.passed else Text.assemble(("✗ ", "error"), "not verified")
    )
    outcomes = {result.probe: result.outcome for result in data.results}
    missing = [f"{name} {outcomes.get(name, 'not run')}" for name in data.required if outcomes.get(name) != "passed"]
    if missing:
        verdict.append(f": required, but {', '.join(missing)}")
    place = f"driver {data.driver}, {', '.join(data.gpus)}" if data.driver else "no GPU"
    return verdict.append(f"  {data.python}, {place}")
