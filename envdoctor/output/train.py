"""Rendering of recipes, settings and training runs."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envdoctor.commands.recipes import RecipeList
from envdoctor.commands.train import EffectiveSettings, SettingList, TrainResult
from envdoctor.core.command_line import command_line
from envdoctor.output.text import Part, Text, indent, table

if TYPE_CHECKING:
    from envdoctor.training.preflight import Blocker
    from envdoctor.training.start import Run


def render_recipes(data: RecipeList) -> list[Part]:
    """Render the bundled recipes."""
    rows = table("recipe", "description")
    for recipe in data.recipes:
        rows.add_row(Text(recipe.name, style="title"), recipe.summary)
    return [rows]


def render_settings(data: SettingList) -> list[Part]:
    """Render the settings of a trainer."""
    rows = table("setting", "default", "description")
    for setting in data.settings:
        help_text = Text(setting.help)
        if setting.choices and not isinstance(setting.default, bool):
            help_text.append(f" ({', '.join(choice or 'empty' for choice in setting.choices)})", style="dim")
        if setting.tasks:
            help_text.append(f" [{', '.join(setting.tasks)}]", style="dim")
        rows.add_row(Text(setting.name, style="title"), _setting_value(setting.default), help_text)
    return [rows]


def render_effective_settings(data: EffectiveSettings) -> list[Part]:
    """Render the settings of a recipe by groups, with the source of each value."""
    parts: list[Part] = []
    for group, settings in itertools.groupby(data.settings, key=lambda setting: setting.group):
        rows = table("setting", "value", "from", "description")
        for setting in settings:
            style = "dim" if setting.source.startswith("default") else ""
            rows.add_row(
                Text(setting.name, style="title"), _setting_value(setting.value), Text(setting.source, style=style),
                setting.help,
            )  # fmt: skip
        parts += [Text(f"\n{group}", style="title"), rows]
    if data.other_fields:
        parts.append(Text("\nAt the defaults of TRL and transformers; --set changes them", style="title"))
        parts.append(Text(", ".join(data.other_fields), style="dim"))
    return parts


def render_training(data: TrainResult) -> list[Part]:
    """Render a run: for a dry run its settings and launch, else the held-out metrics and the run directory."""
    if data.dry_run:
        from envdoctor.training.recipes import read_settings

        trainer = str(data.run.settings.get("trainer", ""))
        defaults = {setting.name: setting.default for setting in read_settings(data.run.engine, trainer)}
        changed = {key: value for key, value in data.run.settings.items() if value != defaults.get(key)}
        rows = table("setting", "value", "default")
        for key, value in changed.items():
            rows.add_row(key, _setting_value(value), Text(_setting_value(defaults.get(key)), style="dim"))
        others = f"{len(data.run.settings) - len(changed)} settings at their defaults: envdoctor train --settings"
        summary = [Text(f"{key}: {value}") for key, value in data.summary.items()]
        variables = [Text(f"sets {name}={value}, of the profile") for name, value in data.variables.items()]
        blockers = [part for blocker in data.blockers for part in _blocker(blocker)]
        return [rows, Text(others, style="dim"), *summary, *variables, *launch_lines(data.run), *blockers]
    if data.job:
        return _submitted(data)
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
        *([indent(Text(f"time: {shares}", style="dim"))] if shares else []),
        indent(Text(versions, style="dim")),
        indent(Text(f"run: {data.run.directory} (run.json, metrics.csv, generations.csv, curves.png, model/)")),
    ]


def _blocker(blocker: Blocker) -> list[Part]:
    lines = [Text.assemble(("✗ ", "error"), f"the run would stop: {blocker.message}")]
    texts = (("expected", blocker.expected), ("hint", blocker.hint))
    return [*lines, *(indent(Text(f"{name}: {text}")) for name, text in texts if text)]


def launch_lines(run: Run) -> list[Text]:
    """Render a launch: variables, limits, files and the command, each with its reason."""
    launch = run.launch
    if launch is None:
        return [_command(run.command)]
    size = (
        f"{launch.nodes} node{'s' * (launch.nodes > 1)} x {launch.processes} process{'es' * (launch.processes > 1)}"
    )
    files = [part for name, text in launch.files.items() for part in _file(f"{run.directory}/{name}", text)]
    return [
        Text(f"\n# {launch.launcher}: {size}", style="dim"),
        *(Text(f"# {note}", style="dim") for note in launch.notes),
        *(_shell_line(variable.line) for variable in launch.environment),
        *(_shell_line(line) for line in launch.limits),
        *files,
        _command(run.command),
        *(
            part
            for line in launch.other_nodes
            for part in (Text("# on each other node:", style="dim"), Text(line, wrap=False))
        ),
    ]


def _file(path: str, text: str) -> list[Text]:
    lines = [_shell_line(line) for line in text.rstrip("\n").split("\n")]
    return [Text(f"# ---- {path}", style="title"), *lines, Text("# ----", style="title")]


def _shell_line(line: str) -> Text:
    command, mark, reason = line.partition("  # ")
    return Text.assemble(command, (f"{mark}{reason}", "dim"), wrap=False)


def _command(words: Sequence[str]) -> Text:
    return Text("$ " + shlex.join(words), style="command")


def _submitted(data: TrainResult) -> list[Part]:
    run = data.run.directory
    saving = f" (save first: scancel --signal=USR1 {data.job})" if data.run.engine == "grpo" else ""
    return [
        Text.assemble(("✓ ", "ok"), f"job {data.job} submitted: {run}/job.sbatch"),
        indent(Text(f"watch it: {command_line('envdoctor', 'watch', run)}")),
        indent(Text(f"queue: squeue --jobs {data.job}; log: {run}/train.log")),
        indent(Text(f"end it: scancel {data.job}{saving}")),
    ]


def _held_out(result: dict[str, Any]) -> Part:
    before, after = result.get("before") or {}, result.get("after") or {}
    rows = table("held-out", "before", "after")
    for name in dict.fromkeys([*before, *after]):
        rows.add_row(name, _number(before.get(name)), _number(after.get(name)))
    for name, values in (result.get("baselines") or {}).items():
        shown = ", ".join(f"{metric} {_number(value)}" for metric, value in values.items())
        rows.add_row(Text(f"against {name}", style="dim"), "", Text(shown, style="dim"))
    return rows


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "" if value is None else str(value)


def _setting_value(value: object) -> str:
    if value is None:
        return "TRL's"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
