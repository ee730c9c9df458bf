"""Renderer of `envdoctor report`."""

from __future__ import annotations

from envdoctor.commands.report import IssueReport, to_markdown
from envdoctor.output.text import Part, Verbatim


def render_report(data: IssueReport) -> list[Part]:
    """The report in Markdown, without wrapping."""
    return [Verbatim(to_markdown(data))]
