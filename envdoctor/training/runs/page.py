"""The page of `envdoctor plot --output curves.html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envdoctor.pages.chart import charts
from envdoctor.pages.document import document, escape
from envdoctor.training.runs.curves import legend, make_charts
from envdoctor.training.runs.metrics import RunMetrics


def curves_page(runs: Mapping[str, RunMetrics], metrics: Sequence[str]) -> str:
    """The curves of runs as a page."""
    names = ", ".join(runs)
    counts = "; ".join(
        f"{escape(name)}: {run.steps:,} {'step' if run.steps == 1 else 'steps'}, {len(run.evaluations)} evaluations"
        for name, run in runs.items()
    )
    title = f"Training curves of {names}" if len(runs) == 1 else f"Training curves of {len(runs)} runs"
    body = f'<header>\n<h1>{escape(title)}</h1>\n<p class="muted">{counts}</p>\n</header>\n{curves(runs, metrics)}'
    return document(title, body)


def curves(runs: Mapping[str, RunMetrics], metrics: Sequence[str]) -> str:
    """The charts of runs with their legend, below a heading for screen readers."""
    drawn = make_charts(runs, metrics)
    return f"<section>\n<h2>Metrics</h2>\n{charts(drawn, legend(runs, drawn))}\n</section>"
