"""Renderers of texts and files: printed unchanged, without wrapping."""

from __future__ import annotations

import msgspec
from rich.console import RenderableType
from rich.text import Text

from envdoctor.commands.report import IssueReport, to_markdown
from envdoctor.core.results import TextOutput, WrittenFile
from envdoctor.output.schema import SchemaResult


def text(data: TextOutput) -> list[RenderableType]:
    """The text itself."""
    return _unchanged(data.text)


def report(data: IssueReport) -> list[RenderableType]:
    """The report in Markdown."""
    return _unchanged(to_markdown(data))


def schema(data: SchemaResult) -> list[RenderableType]:
    """The schema as JSON."""
    return [Text(msgspec.json.format(msgspec.json.encode(data.schema), indent=2).decode(), no_wrap=True)]


def written_file(data: WrittenFile) -> list[RenderableType]:
    """Path and content of a file."""
    return [Text.assemble(("✓ ", "ok"), data.path, f"  {data.summary}")]


def _unchanged(text: str) -> list[RenderableType]:
    return [Text(text, no_wrap=True, end="")]
