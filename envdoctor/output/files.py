"""Renderers of texts and files: printed unchanged, without wrapping."""

from __future__ import annotations

import msgspec

from envdoctor.core.results import TextOutput, WrittenFile
from envdoctor.output.schema import SchemaResult
from envdoctor.output.text import Part, Text, Verbatim


def render_text(data: TextOutput) -> list[Part]:
    """The text itself."""
    return [Verbatim(data.text)]


def render_schema(data: SchemaResult) -> list[Part]:
    """The schema as JSON."""
    return [Verbatim(msgspec.json.format(msgspec.json.encode(data.schema), indent=2).decode() + "\n")]


def render_written_file(data: WrittenFile) -> list[Part]:
    """Path and content of a file."""
    return [Text.assemble(("✓ ", "ok"), data.path, f"  {data.summary}")]
