"""Renderers of texts and files: printed unchanged, without wrapping."""

from __future__ import annotations

import msgspec
from rich.console import RenderableType
from rich.text import Text

from envdoctor.core.results import TextOutput, WrittenFile
from envdoctor.output.schema import SchemaResult


def render_text(data: TextOutput) -> list[RenderableType]:
    """The text itself."""
    return [Text(data.text, no_wrap=True, end="")]


def render_schema(data: SchemaResult) -> list[RenderableType]:
    """The schema as JSON."""
    return [Text(msgspec.json.format(msgspec.json.encode(data.schema), indent=2).decode(), no_wrap=True)]


def render_written_file(data: WrittenFile) -> list[RenderableType]:
    """Path and content of a file."""
    return [Text.assemble(("✓ ", "ok"), data.path, f"  {data.summary}")]
