"""Rendering of watched, plotted and packed runs."""

from __future__ import annotations

from pathlib import Path

from envdoctor.commands.check_pack import PackCheckResult
from envdoctor.commands.pack import Manifest, PackResult
from envdoctor.commands.plot import PlotResult
from envdoctor.commands.watch import WatchResult
from envdoctor.core.command_line import command_line
from envdoctor.output import run_lines
from envdoctor.output.console import out
from envdoctor.output.run_live import alarm_line, evaluation_line, silence_line, trainer_line
from envdoctor.output.text import Part, Text, hint, table
from envdoctor.training.runs.directory import resume_hint

ENDINGS = {"done": ("✓ ", "ok"), "failed": ("✗ ", "error"), "interrupted": ("! ", "warning"), "": ("• ", "info")}
SUCCESS = ("✓ ", "ok")


def render_watch(data: WatchResult) -> list[Part]:
    """Render the state of a run."""
    state = data.state
    mark = ENDINGS[state.ending]
    parts: list[Part] = [
        Text.assemble(mark, (data.recipe, "title"), f" {state.ending or 'running'}: {data.directory}")
    ]
    parts += run_lines.lines(state, out().width, data.gpus)
    first_and_last = (*state.evaluations[:1], *state.evaluations[1:][-1:])
    parts += [evaluation_line(evaluation) for evaluation in first_and_last]
    parts += [alarm_line(alarm) for alarm in state.alarms]
    parts += [Text.assemble(("  i ", "info"), note) for note in state.notes]
    if data.silent is not None:
        parts.append(silence_line(data))
    parts.append(trainer_line(data))
    if state.error:
        error = state.error
        parts.append(Text.assemble(("error: ", "error"), error.message))
        parts += [Text.assemble(("expected: ", "info"), error.expected)] if error.expected else []
        parts += [hint(error.hint)] if error.hint else []
    if state.ending == "interrupted":
        parts.append(Text(resume_hint(Path(data.directory)), style="info", wrap=False))
    return parts


def render_plot(data: PlotResult) -> list[Part]:
    """Render the path and the content of a figure."""
    runs = ", ".join(f"{name} ({steps} steps)" for name, steps in zip(data.runs, data.steps, strict=True))
    shown = Text.assemble(SUCCESS, (data.path, "title"), f"  {', '.join(data.panels)}: {runs}")
    empty = [Text.assemble(("! ", "warning"), f"no steps yet: {', '.join(data.empty)}")] if data.empty else []
    return [shown, *empty]


def render_pack(data: PackResult) -> list[Part]:
    """Render a zip: its content, and the number of excluded files."""
    manifest = data.manifest
    left_out = [f"{count} of {reason}" for reason, count in manifest.left_out.items()]
    removed = sum(file.secrets_removed for file in manifest.files)
    parts: list[Part] = [
        Text.assemble(SUCCESS, (data.path, "title"), f"  {len(manifest.files)} files, {_size(data.size)}"),
        *_contents(manifest),
    ]
    if left_out:
        parts.append(Text(f"  excluded files: {', '.join(left_out)}", style="dim"))
    if removed:
        parts.append(
            Text.assemble(("  ! ", "warning"), f"secrets removed: {removed}; the run's own files still contain them")
        )
    return [*parts, Text(f"$ {command_line('envdoctor', 'check-pack', data.path)}", style="command")]


def render_pack_check(data: PackCheckResult) -> list[Part]:
    """Render the comparison of a zip with its manifest."""
    if not data.faults:
        line = Text.assemble(SUCCESS, f"{data.files} files, {_size(data.size)}: all checksums match the manifest")
        return [line, *(_contents(data.manifest) if data.manifest else [])]
    faults = [Text.assemble(("  ✗ ", "error"), fault) for fault in data.faults]
    return [Text.assemble(("✗ ", "error"), f"{data.path} differs from its manifest"), *faults]


def _contents(manifest: Manifest) -> list[Part]:
    """Render the run in one line, and its held-out metrics."""
    status = f"{manifest.ending or 'running'} at step {manifest.step} of {manifest.steps}"
    lines: list[Part] = [Text(f"  {manifest.run}: recipe {manifest.recipe}, {status}", style="dim")]
    if manifest.after:
        rows = table("held-out", "before", "after")
        for name, value in manifest.after.items():
            before = manifest.before.get(name)
            rows.add_row(name, "" if before is None else f"{before:.4g}", f"{value:.4g}")
        lines.append(rows)
    return lines


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 20 else f"{count / (1 << 10):.1f} KiB"
