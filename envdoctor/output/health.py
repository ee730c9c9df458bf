"""Renderer of `envdoctor health`: one line that scripts use as the reason, then the observations."""

from __future__ import annotations

from envdoctor.commands.health import HealthReport
from envdoctor.output.text import Part, Text, count

MARKS = {"isolate": ("✗", "error"), "reset": ("✗", "error"), "monitor": ("!", "warning"), "healthy": ("✓", "ok")}


def render_health(data: HealthReport) -> list[Part]:
    """`isolate: ` and the worst observation first; it is one line also on a terminal."""
    mark, style = MARKS[data.severity]
    usable = sum(gpu.name.state == "known" for gpu in data.machine.gpus.value or ())
    driver = data.machine.driver.version.value
    summary = f"{count(usable, 'GPU')}, driver {driver}" if driver else "no NVIDIA driver"
    if data.items:
        more = f" (and {len(data.items) - 1} more)" if len(data.items) > 1 else ""
        summary = f"{data.items[0].id} {data.items[0].message}{more}"
    parts: list[Part] = [Text.assemble((f"{mark} ", style), (data.severity, "title"), f": {summary}", wrap=False)]
    for item in data.items:
        item_mark, item_style = MARKS[item.action]
        parts.append(
            Text.assemble((f"  {item_mark} ", item_style), f"{item.action}  ", (item.id, "title"), f" {item.message}")
        )
    if data.xids.state != "known":
        parts.append(Text(f"  ? Xid messages were not read: {data.xids.note}", style="dim"))
    return parts
