"""Recipes, settings and trained runs for people."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from envdoctor import results
from envdoctor.output.console import table


def recipes(data: results.RecipeList) -> list[RenderableType]:
    """The bundled recipes."""
    rows = table("recipe", "what it trains")
    for recipe in data.recipes:
        rows.add_row(Text(recipe.name, style="title"), recipe.summary)
    return [rows]


def settings(data: results.SettingList) -> list[RenderableType]:
    """The trainer's vocabulary."""
    rows = table("setting", "default", "what it is")
    for word in data.settings:
        says = Text(word.says)
        if word.choices:
            says.append(f" ({', '.join(choice or 'empty' for choice in word.choices)})", style="dim")
        if word.tasks:
            says.append(f" [{', '.join(word.tasks)}]", style="dim")
        rows.add_row(Text(word.name, style="title"), _written(word.default), says)
    return [rows]


def trained(data: results.Trained) -> list[RenderableType]:
    """What would be trained, or what came of it: held-out numbers before and after, and where the run lies."""
    if data.dry_run:
        rows = table("setting", "value")
        for key, value in data.run.settings.items():
            rows.add_row(key, _written(value))
        facts = [Text(f"{key}: {value}") for key, value in data.summary.items()]
        return [rows, *facts, Text("$ " + " ".join(data.run.command), style="command")]
    result = data.result
    device = result.get("gpu") or result.get("device", "")
    device = f"{result['ranks']} x {device}" if result.get("ranks", 1) > 1 else device
    ended = Text.assemble(("✓ ", "ok"), f"{result.get('steps', '?')} steps in {data.seconds:.0f} s on {device}")
    if result.get("stopped_by"):
        ended = Text.assemble(("✗ ", "error"), f"stopped by {result['stopped_by']} after {result.get('steps')} steps")
    versions = " ".join(f"{name} {version}" for name, version in result.get("versions", {}).items())
    versions += f" (attention: {result['attention']})" if result.get("attention") else ""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in result.get("shares", {}).items() if share >= 0.005)
    return [
        _held_out(result),
        ended,
        *([_indent(Text(f"of the time: {shares}", style="dim"))] if shares else []),
        _indent(Text(versions, style="dim")),
        _indent(Text(f"run: {data.run.directory} (run.json, metrics.csv, generations.csv, curves.png, model/)")),
    ]


def _held_out(result: dict[str, Any]) -> RenderableType:
    before, after = result.get("before", {}), result.get("after", {})
    rows = table("held-out", "before", "after")
    for name in dict.fromkeys([*before, *after]):
        rows.add_row(name, _number(before.get(name)), _number(after.get(name)))
    for name, values in (result.get("baselines") or {}).items():
        shown = ", ".join(f"{metric} {_number(value)}" for metric, value in values.items())
        rows.add_row(Text(f"against {name}", style="dim"), "", Text(shown, style="dim"))
    return rows


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "" if value is None else str(value)


def _written(value: object) -> str:
    """A setting as it is written after --set KEY=."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _indent(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 4))
