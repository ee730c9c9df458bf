"""A filled wheelhouse for people."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from envdoctor.commands.fetch import Fetched

MIB = 1 << 20


def fetched(data: Fetched) -> list[RenderableType]:
    """What was fetched, what was there, what was left out, and the command for the other machine."""
    parts: list[RenderableType] = [
        Text.assemble(
            ("✓ ", "ok"),
            (data.profile, "title"),
            f"  {data.platform}  Python {data.python}  lock {data.digest}",
            "" if data.own_lock else " (resolved now)",
        ),
        _indent(
            f"{data.files} files, {data.bytes / MIB:.1f} MiB in {data.folder}; {data.files - data.kept} downloaded "
            f"({data.downloaded / MIB:.1f} MiB), {data.kept} were there; {data.seconds:.1f} s"
        ),
    ]
    if data.direct:
        parts.append(_indent(f"direct wheels: {', '.join(data.direct)}"))
    parts += [_indent(f"left out: {line}") for line in data.left_out]
    if data.removed:
        parts.append(_indent(f"of an earlier lock, removed: {', '.join(data.removed)}"))
    parts.append(Text("Copy the folder; on the machine without a network:"))
    parts.append(Text(f"$ {data.command}", style="command"))
    return parts


def _indent(line: str) -> Padding:
    return Padding(Text(line, style="dim"), (0, 0, 0, 2), expand=False)
