"""Charts of training runs: one for each metric, each with the curves of all runs and their evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envdoctor.pages.chart import Chart, Key, Series, Style
from envdoctor.training.runs.metrics import RunMetrics, smoothed
from envdoctor.training.runs.state import SMOOTHED

# Title and unit of each metric; other columns are shown with their names.
METRICS = {
    "reward": ("Reward", ""),
    "loss": ("Loss", ""),
    "kl": ("KL divergence", "nats per token"),
    "entropy": ("Entropy", "nats per token"),
    "completion_length": ("Completion length", "tokens"),
    "seconds": ("Step time", "s"),
    "exact_match": ("Exact match", ""),
    "parse_rate": ("Parse rate", ""),
    "accuracy": ("Accuracy", ""),
    "grad_norm": ("Gradient norm", ""),
    "learning_rate": ("Learning rate", ""),
    "reward_std": ("Standard deviation of the rewards", ""),
    "truncated": ("Truncated completions", "share"),
    "frac_reward_zero_std": ("Groups with equal rewards", "share"),
    "tokens_per_second": ("Throughput", "tokens/s"),
    "memory_gib": ("Peak GPU memory", "GiB"),
}
USUAL = ("reward", "loss", "kl", "entropy", "completion_length", "seconds")
# The curves of one run: name, style and colour. Several runs have a colour each.
STEP = "each step"
SINGLE: tuple[tuple[str, Style, int], ...] = (
    (STEP, "thin", 0),
    ("smoothed", "thick", 1),
    ("held-out rows, greedy", "filled", 3),
    ("held-out rows, sampled", "hollow", 2),
    ("held-out rows", "filled", 3),  # of SFT and DPO, which sample no completions
)

Runs = Mapping[str, RunMetrics]


def default_metrics(runs: Runs) -> list[str]:
    """The usual metrics and the smoothed ones that a run has; without steps, the metrics of the evaluations."""
    known = known_metrics(runs)
    smooth = [name.removesuffix(SMOOTHED) for name in known if name.endswith(SMOOTHED)]
    usual = [name for name in dict.fromkeys(("reward", *smooth, *USUAL)) if name in known]
    return usual or list(dict.fromkeys(name.partition("_")[2] for name in _held_out_names(runs) if "_" in name))


def known_metrics(runs: Runs) -> list[str]:
    """The columns with a number in some run."""
    return list(dict.fromkeys(name for run in runs.values() for name in run.columns))


def make_charts(runs: Runs, metrics: Sequence[str]) -> list[Chart]:
    """A chart for each metric."""
    return [
        Chart(
            *METRICS.get(metric, (metric, "")),
            tuple(
                series
                for number, (name, run) in enumerate(runs.items())
                for series in _series(name if len(runs) > 1 else "", run, metric, number)
            ),
        )
        for metric in metrics
    ]


def legend(runs: Runs, charts: Sequence[Chart]) -> list[Key]:
    """The curves of one run; of several runs, the colour of each and the styles of the evaluations."""
    used = {series.name for chart in charts for series in chart.series}
    if len(runs) == 1:
        return [key for key in SINGLE if key[0] in used]
    names: list[Key] = [(name, "thick", number) for number, name in enumerate(runs)]
    shown = [key for key in SINGLE[2:] if any(f"{name}, {key[0]}" in used for name in runs)]
    return names + [(text, style, None) for text, style, _ in shown]


def _series(run_name: str, run: RunMetrics, metric: str, number: int) -> list[Series]:
    """The curves of one run. Those of several runs have the run's colour and begin with its name."""
    smooth = run.column(smoothed(metric))
    held_out = (run.held_out(f"greedy_{metric}"), run.held_out(f"sampled_{metric}"), run.held_out(metric))
    points = (run.column(metric), smooth, *held_out)
    found = [Series(*key, shown) for key, shown in zip(SINGLE, points, strict=True)]
    if run_name:
        found = [_of_several(series, run_name, number, is_smoothed=bool(smooth)) for series in found]
    return [series for series in found if series.shown]


def _of_several(series: Series, run_name: str, number: int, *, is_smoothed: bool) -> Series:
    style: Style = "faint" if series.name == STEP and is_smoothed else series.style
    return Series(f"{run_name}, {series.name}", style, number, series.points)


def _held_out_names(runs: Runs) -> list[str]:
    return list(dict.fromkeys(name for run in runs.values() for each in run.evaluations for name in each.metrics))
