"""Renderer of `envdoctor report`."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from envdoctor.commands.report import IssueReport, to_markdown


def render_report(data: IssueReport) -> list[RenderableType]:
    """The report in Markdown, without wrapping."""
    return [Text(to_markdown(data), no_wrap=True, end="")]
