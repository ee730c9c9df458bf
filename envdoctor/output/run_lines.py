"""Formats the state of a run as lines of a given width. Cells that do not fit are omitted, the last ones first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from envdoctor.machine.gpu_usage import GpuUsage
from envdoctor.output.layout import cell_width
from envdoctor.output.text import Text
from envdoctor.training.runs.state import Evaluation, RunState

BLOCKS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH, MIN_SPARKLINE_WIDTH = 24, 4  # characters
NARROW = 80  # columns
PIPE_WIDTH = 10_000  # in a pipe no cell is omitted
GIB = 1 << 30
MAIN_METRICS = ("reward", "exact_match", "accuracy")  # the first available one is shown


def lines(state: RunState, width: int | None, gpus: Sequence[GpuUsage] = ()) -> list[Text]:
    """Return the lines of progress, learning, policy, speed, and the GPUs."""
    width = width or PIPE_WIDTH
    rows = [_progress(state), _learning(state, width), _policy(state), _speed(state)]
    rows += [_gpu(gpu) for gpu in gpus]
    return [Text("  " + joined, wrap=False) for cells in rows if (joined := join(cells, width - 2))]


def plain(state: RunState) -> str:
    """Return all cells on one line, for a log."""
    rows = (_progress(state), _learning(state, 0), _policy(state), _speed(state))
    return "  " + "  ".join(cell for row in rows for cell in row)


def join(cells: Iterable[str], width: int) -> str:
    """Join the cells that fit into a line."""
    line = ""
    for cell in cells:
        longer = f"{line}  {cell}" if line else cell
        if cell_width(longer) > width:
            continue
        line = longer
    return line


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values as block characters, each the mean of a part; a constant is a low line."""
    if width < MIN_SPARKLINE_WIDTH or len(values) < 2:
        return ""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def span(seconds: float) -> str:
    """Format a duration: 42 s, 3:07, 2:14:09, 3 d 4 h."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60}:{total % 60:02}"
    if total < 86400:
        return f"{total // 3600}:{total % 3600 // 60:02}:{total % 60:02}"
    return f"{total // 86400} d {total % 86400 // 3600} h"


def evaluation_metrics(evaluation: Evaluation) -> str:
    """Format held-out metrics on one line; greedy and sampled values of a metric share a cell."""
    cells = []
    for name, value in evaluation.metrics.items():
        kind, _, rest = name.partition("_")
        if kind == "sampled" and f"greedy_{rest}" in evaluation.metrics:
            continue
        other = evaluation.metrics.get(f"sampled_{rest}") if kind == "greedy" else None
        cells.append(f"{rest} {value:.3g}/{other:.3g}" if other is not None else f"{name} {value:.3g}")
    both = "  (greedy/sampled)" if any("/" in cell for cell in cells) else ""
    return "  ".join(cells) + both


def _progress(state: RunState) -> list[str]:
    if not state.step:
        return [f"{state.phase} {state.detail}".strip()] if state.phase else []
    done = f"{state.step}/{state.steps}" if state.steps else str(state.step)
    name = "warm-up step" if state.phase == "warmup" else "step"
    cells = [f"{name} {done}"]
    if state.seconds_left is not None:
        cells.append(f"{span(state.seconds_left)} left")
    if state.step_seconds is not None:
        cells.append(f"{state.step_seconds:.3g} s per step")
    if "loss" in state.metrics:
        cells.append(f"loss {state.metrics['loss']:.3g}")
    return cells + ([f"checkpoint {state.checkpoint}"] if state.checkpoint else [])


def _learning(state: RunState, width: int) -> list[str]:
    cells = []
    if state.rewards:
        spark = sparkline(state.rewards, min(SPARKLINE_WIDTH, width // 3 - 12))
        cells.append(f"reward {state.rewards[-1]:.3g}" + (f" {spark}" if spark else ""))
    if state.evaluations:
        cells.append(_held_out(state.evaluations[-1], short=0 < width < NARROW))
    smooth = {n.removesuffix("_smooth"): v for n, v in state.metrics.items() if n.endswith("_smooth")}
    return cells + [f"{name} {value:.3g}" for name, value in smooth.items() if name != "reward"]


def _held_out(evaluation: Evaluation, *, short: bool) -> str:
    """Format the main held-out metric: `held-out exact_match 0.86/0.75 (step 200)`, greedy and sampled."""
    for name in MAIN_METRICS:
        values = [
            evaluation.metrics[f"{kind}_{name}"]
            for kind in ("greedy", "sampled")
            if f"{kind}_{name}" in evaluation.metrics
        ]
        if values:
            shown = "/".join(f"{value:.3g}" for value in values)
            return f"held-out {shown}" if short else f"held-out {name} {shown} (step {evaluation.step})"
    return f"held-out {evaluation_metrics(evaluation)} (step {evaluation.step})"


def _policy(state: RunState) -> list[str]:
    metrics = state.metrics
    names = {"completion_length": "length", "entropy": "entropy", "kl": "KL", "grad_norm": "grad_norm"}
    cells = [f"{shown} {metrics[name]:.3g}" for name, shown in names.items() if name in metrics]
    shares = {"truncated": "truncated", "frac_reward_zero_std": "no signal"}
    return cells + [f"{shown} {100 * metrics[name]:.0f} %" for name, shown in shares.items() if name in metrics]


def _speed(state: RunState) -> list[str]:
    metrics = state.metrics
    cells = [f"{metrics['tokens_per_second']:,.0f} tokens/s"] if "tokens_per_second" in metrics else []
    cells += [f"{part} {100 * share:.0f} %" for part, share in state.shares.items()]
    return cells + ([f"peak {metrics['memory_gib']:.3g} GiB"] if "memory_gib" in metrics else [])


def _gpu(gpu: GpuUsage) -> list[str]:
    cells = [f"GPU {gpu.index}"]
    if gpu.busy is not None:
        cells.append(f"{100 * gpu.busy:.0f} % busy")
    if gpu.memory_used is not None and gpu.memory_total:
        cells.append(f"{gpu.memory_used / GIB:.1f} of {gpu.memory_total / GIB:.0f} GiB")
    if gpu.power is not None:
        limit = f" of {gpu.power_limit:.0f}" if gpu.power_limit else ""
        cells.append(f"{gpu.power:.0f}{limit} W")
    return cells + ([f"{gpu.temperature} °C"] if gpu.temperature is not None else []) + [gpu.name]
