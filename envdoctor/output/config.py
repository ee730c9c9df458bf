"""Renderer of `envdoctor config`."""

from __future__ import annotations

from envdoctor.commands.config import ConfigList
from envdoctor.output.text import Part, Text, table


def render_config(data: ConfigList) -> list[Part]:
    """Each key with its value and source, and the files."""
    rows = table("key", "value", "set by", "meaning")
    for entry in data.keys:
        value = ",".join(entry.value) if isinstance(entry.value, tuple) else str(entry.value).lower()
        value = entry.value if isinstance(entry.value, str) else value
        shown = Text("not set", "dim") if entry.value is None else Text(value, "path")
        rows.add_row(Text(entry.key, "title"), shown, Text(entry.source or entry.variable, "path"), entry.help)
    user = f"your file: {data.user_file}" + ("" if data.user_file_exists else " (does not exist)")
    project = f"project: {data.project_file or 'no pyproject.toml with [tool.envdoctor] in a parent directory'}"
    return [rows, Text(), Text(user), Text(project)]
