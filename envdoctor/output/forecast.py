"""Renderer of `envdoctor forecast`: what would break, the safe upgrades, and what was not judged."""

from __future__ import annotations

from envdoctor.forecast.records import Break, ForecastResult, SafeSet, Upgrade
from envdoctor.output.display import display
from envdoctor.output.text import Part, Text, command, count, indent, table

SHOWN_BREAKS = 4  # of one upgrade
SHOWN_UNREAD = 8


def render_forecast(data: ForecastResult) -> list[Part]:
    """The verdict, the upgrades that break something, the safe set, then what was not judged."""
    breaking = [upgrade for upgrade in data.upgrades if upgrade.breaks]
    parts: list[Part] = [_verdict(data, breaking)]
    exact: dict[str, list[str]] = {}
    for upgrade in breaking:
        if not display().verbose and (owner := _exact_owner(upgrade)):
            exact.setdefault(owner, []).append(f"{upgrade.package} {upgrade.release}")
        else:
            parts += _upgrade(upgrade)
    for owner, names in exact.items():
        listed = ", ".join(names)
        parts.append(Text.assemble(("  ✗ ", "error"), f"{owner} requires exactly the locked versions, not {listed}"))
    harmless = [f"{each.package} {each.release}" for each in data.upgrades if not each.breaks]
    if harmless:
        text = f"  {count(len(harmless), 'upgrade')} alone without a break in what was read: {', '.join(harmless)}"
        parts.append(Text(text, style="dim"))
    parts += _safe(data.safe) if data.safe else []
    parts += [Text.assemble(("✓ ", "ok"), "wrote ", (data.written, "path"))] if data.written else []
    return [*parts, *_unread(data)]


def _verdict(data: ForecastResult, breaking: list[Upgrade]) -> Text:
    scope = f"releases up to {data.until}, Python {data.python}, {data.platform}{', ' if data.gpu else ''}{data.gpu}"
    if breaking:
        title = f"{len(breaking)} of {count(len(data.upgrades), 'upgrade')} would break something"
        mark, style = "✗ ", "error"
    elif data.is_incomplete:
        title, mark, style = "no break in what was read, and not all could be read", "? ", "unknown"
    elif data.upgrades:
        title, mark, style = f"no break in {count(len(data.upgrades), 'upgrade')}", "✓ ", "ok"
    else:
        title, mark, style = "there is no newer release", "✓ ", "ok"
    return Text.assemble((mark, style), (data.source, "path"), (f": {title}", "title"), f" ({scope})")


def _exact_owner(upgrade: Upgrade) -> str:
    """The package whose `==` is all that an upgrade breaks, as torch's on its CUDA libraries; else empty."""
    owners = {found.user for found in upgrade.breaks}
    is_exact = all(
        found.kind == "requirement" and found.user != upgrade.package and "==" in found.message
        for found in upgrade.breaks
    )
    return owners.pop() if is_exact and len(owners) == 1 else ""


def _upgrade(upgrade: Upgrade) -> list[Part]:
    patch = ", newest of its minor version" if upgrade.is_patch else ""
    day = f" ({upgrade.day}{patch})" if upgrade.day else ""
    parts: list[Part] = [
        Text.assemble(("  ✗ ", "error"), (f"{upgrade.package} {upgrade.locked} -> {upgrade.release}", "name"), day)
    ]
    breaks = sorted(upgrade.breaks, key=lambda found: found.is_deferred)
    shown = breaks if display().verbose else breaks[:SHOWN_BREAKS]
    parts += [line for found in shown for line in _break(found, upgrade)]
    left = len(breaks) - len(shown)
    return [*parts, *([indent(Text(f"and {left} more: --verbose", style="dim"), 6)] if left else [])]


def _break(found: Break, upgrade: Upgrade) -> list[Part]:
    since = f", since {found.release} ({found.day})" if found.release != upgrade.release else ""
    when = ", when it is called" if found.is_deferred else ""
    parts: list[Part] = [indent(Text(f"{found.message}{when}{since}"), 6)]
    shown = found.evidence if display().verbose else found.evidence[:1]
    lines = (f"{evidence.fact}: {evidence.value}  ({evidence.source})" for evidence in shown)
    return [*parts, *(indent(Text(line, style="dim"), 8) for line in lines)]


def _safe(safe: SafeSet) -> list[Part]:
    if safe.problem:
        remaining = [indent(Text(found.message)) for found in safe.remaining]
        return [Text.assemble(("\n? ", "unknown"), f"no set of safe upgrades: {safe.problem}"), *remaining]
    if not safe.upgrades:
        parts: list[Part] = [Text("\nNo upgrade is safe together with the others", style="title")]
    else:
        title = f"\n{count(len(safe.upgrades), 'upgrade')} without a known break together, solved by uv"
        rows = table("package", "locked", "safe", "uploaded")
        for each in safe.upgrades:
            rows.add_row(each.package, each.locked, each.release, each.day or "unknown")
        parts = [Text(title, style="title"), rows]
    if safe.held:
        rows = table("package", "stays at", "newest", "why")
        for held in safe.held:
            rows.add_row(held.package, held.release, held.newest, held.reasons[0])
        parts += [Text("\nNot the newest release", style="title"), rows]
    return [*parts, *(indent(command(line), 2) for line in safe.command)]


def _unread(data: ForecastResult) -> list[Part]:
    if not data.unread:
        return []
    ordered = sorted(data.unread, key=lambda each: not each.is_failed)
    shown = ordered if display().verbose else ordered[:SHOWN_UNREAD]
    parts: list[Part] = [Text("\nNot judged", style="title")]
    for each in shown:
        mark, style = ("? ", "unknown") if each.is_failed else ("- ", "dim")
        parts.append(Text.assemble((f"  {mark}", style), f"{each.name}: {each.reason}"))
    left = len(ordered) - len(shown)
    return [*parts, *([Text(f"  and {left} more: --verbose", style="dim")] if left else [])]
