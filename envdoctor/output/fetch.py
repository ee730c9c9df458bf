"""Human output of `fetch`."""

from __future__ import annotations

from envdoctor.commands.fetch import FetchResult
from envdoctor.output.text import Part, Text, indent

MIB = 1 << 20


def render_fetch(data: FetchResult) -> list[Part]:
    """The downloaded files, those that were present or left out, and the install command for the other machine."""
    downloads = f"{data.files - data.kept} downloaded ({data.downloaded / MIB:.1f} MiB), {data.kept} already present"
    details = [f"{data.files} files, {data.bytes / MIB:.1f} MiB in {data.folder}; {downloads}; {data.seconds:.1f} s"]
    if data.direct:
        details.append(f"direct wheels: {', '.join(data.direct)}")
    details += [f"left out: {line}" for line in data.left_out]
    if data.removed:
        details.append(f"removed files of an earlier lock: {', '.join(data.removed)}")
    return [
        Text.assemble(
            ("✓ ", "ok"),
            (data.profile, "title"),
            f"  {data.platform}  Python {data.python}  lock {data.digest}",
            "" if data.own_lock else " (resolved now)",
        ),
        *(indent(Text(line, style="dim"), 2) for line in details),
        Text("Copy the directory to the machine without a network and run there:"),
        Text(f"$ {data.command}", style="command"),
    ]
