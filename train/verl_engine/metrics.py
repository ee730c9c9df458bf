"""Convert verl's metrics, from its console or JSON file, into columns of metrics.csv. Pure functions."""

from __future__ import annotations

import json
import math
import re

# Ray colours the lines of workers and adds a prefix: "\x1b[36m(TaskRunner pid=71)\x1b[0m step:1 - actor/lr:1e-06".
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CONSOLE = re.compile(r"(?:^|\s)step:(\d+) - (\S.*)$")
NUMBER = re.compile(r"(?:np\.\w+\()?(-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan))\)?", re.IGNORECASE)
TOTAL = re.compile(r"Total training steps: (\d+)")

# verl's names of each column; the first existing one counts. Sources: trainer/ppo/metric_utils.py,
# workers/actor/dp_actor.py, ray_trainer.py.
RL_NAMES = {
    "reward": ("critic/score/mean",),
    "loss": ("actor/pg_loss", "actor/loss"),
    "critic_loss": ("critic/vf_loss",),
    "grad_norm": ("actor/grad_norm",),
    "learning_rate": ("actor/lr",),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "kl": ("actor/kl_loss", "actor/reward_kl_penalty"),
    "completion_length": ("response_length/mean",),
    "truncated": ("response_length/clip_ratio",),
    "tokens": ("perf/total_num_tokens",),
    "seconds": ("perf/time_per_step", "timing_s/step"),
    "generate_seconds": ("timing_s/gen",),
    "score_seconds": ("timing_s/reward",),
    "sync_seconds": ("timing_s/update_weights",),
    "memory_gib": (
        "perf/max_memory_allocated_gb",
        "actor/perf/max_memory_allocated_gb",
    ),  # logged by the worker from 0.9.0 on
}
SFT_NAMES = {
    "loss": ("train/loss",),
    "grad_norm": ("train/grad_norm",),
    "learning_rate": ("train/lr",),
    "tokens": ("train/global_tokens",),
    "seconds": ("train/time(s)",),
    "memory_gib": ("perf/max_memory_allocated_gb",),  # only some versions log it
}
UPDATE_TIMES = ("timing_s/update_actor", "timing_s/update_critic")
# Computed from the completions that verl dumps (rollout_dumps.py).
REWARD_STATISTICS = ("reward_std", "frac_reward_zero_std")
COLUMNS = [
    "reward", "reward_std", "frac_reward_zero_std", "loss", "critic_loss", "grad_norm", "learning_rate", "entropy",
    "kl", "completion_length", "truncated", "tokens", "tokens_per_second", "seconds", "generate_seconds",
    "score_seconds", "update_seconds", "sync_seconds", "memory_gib",
]  # fmt: skip
SMOOTHED = {"sft": ["loss"], "ppo": ["reward"], "grpo": ["reward"]}

Metrics = dict[str, float]


def header(task: str) -> list[str]:
    """Return the columns of metrics.csv."""
    rl_columns = set(RL_NAMES) - set(SFT_NAMES) | {"update_seconds", *REWARD_STATISTICS}
    smooth = [f"{name}_smooth" for name in SMOOTHED[task]]
    return ["step", *smooth, *(name for name in COLUMNS if task != "sft" or name not in rl_columns)]


def parse_console(line: str) -> tuple[int, Metrics] | None:
    r"""Parse a line of verl's LocalLogger into (step, metrics).

    Sample: "(TaskRunner pid=71) step:3 - actor/lr:1e-06 - val-core/openai/gsm8k/reward/mean@1:np.float64(0.25)"
    -> (3, {"actor/lr": 1e-06, "val-core/openai/gsm8k/reward/mean@1": 0.25})
    """
    match = CONSOLE.search(ANSI.sub("", line.rstrip()))
    if not match:
        return None
    metrics: Metrics = {}
    for part in match[2].split(" - "):
        name, _, text = part.rpartition(":")
        number = NUMBER.fullmatch(text.strip())
        if name and number:
            metrics[name] = float(number[1])
    return (int(match[1]), metrics) if metrics else None


def parse_file(line: str) -> tuple[int, Metrics] | None:
    """Parse a line of verl's FileLogger into (step, metrics). It writes NaN and Inf as null, which becomes NaN.

    Sample: {"step": 3, "data": {"train/loss": 0.5, "train/grad_norm": null}}
    """
    try:
        record = json.loads(line)
        step, data = record["step"], record["data"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(step, int) or not isinstance(data, dict):
        return None
    values = {name: math.nan if value is None else value for name, value in data.items()}
    return step, {name: float(value) for name, value in values.items() if isinstance(value, (int, float, bool))}


def parse_total(line: str) -> int:
    """Return the total steps of a log line, 0 for other lines. Sample: "Total training steps: 435" -> 435."""
    match = TOTAL.search(line)
    return int(match[1]) if match else 0


def correct_clip_ratio(metrics: Metrics, limit: int) -> Metrics:
    """Set the ratio of truncated completions to 0 if none reached the limit.

    From 0.9.0 on verl compares lengths with the longest completion of the step instead of the limit.
    Sample, for a limit of 48: {"response_length/max": 21, "response_length/clip_ratio": 1} -> the ratio is 0
    """
    if not metrics.get("response_length/max", limit) < limit:
        return metrics
    return metrics | {"response_length/clip_ratio": 0.0}


def rename_metrics(task: str, metrics: Metrics) -> Metrics:
    """Return verl's metrics under the trainer's names, including NaN and Inf; empty for an evaluation alone."""
    names = SFT_NAMES if task == "sft" else RL_NAMES
    existing = (
        (column, next((name for name in verl_names if name in metrics), "")) for column, verl_names in names.items()
    )
    return {column: metrics[name] for column, name in existing if name}


def step_metrics(task: str, metrics: Metrics, gpus: int) -> dict[str, float | None]:
    """Return a step's columns with None for NaN and Inf; empty for an evaluation alone."""
    renamed = rename_metrics(task, metrics)
    if not renamed:
        return {}
    values = {column: renamed.get(column) for column in (SFT_NAMES if task == "sft" else RL_NAMES)}
    row = {column: value if value is None or math.isfinite(value) else None for column, value in values.items()}
    if task == "sft":
        if "train/lr(1e-3)" in metrics:  # up to 0.7.0 in thousandths
            row["learning_rate"] = metrics["train/lr(1e-3)"] / 1000
        if row["tokens"] and row["seconds"]:
            row["tokens_per_second"] = row["tokens"] / row["seconds"]
        return row
    updates = [metrics[name] for name in UPDATE_TIMES if name in metrics]
    row["update_seconds"] = sum(updates) if updates else None
    if "perf/throughput" in metrics:  # tokens per second and GPU, including prompts
        row["tokens_per_second"] = metrics["perf/throughput"] * gpus
    return row


def evaluation_metrics(metrics: Metrics) -> Metrics:
    """Return the metrics of an evaluation, which verl generates greedily by default.

    Samples: {"val-core/openai/gsm8k/reward/mean@1": 0.25} -> {"greedy_reward": 0.25}; {"val/loss": 1.2} ->
    {"greedy_loss": 1.2}. The loss involves no sampling; its name puts it into the plot of the loss.
    """
    rewards = [
        v for k, v in metrics.items() if k.startswith("val-core/") and re.search(r"/(reward|acc)/mean@\d+$", k)
    ]
    result = {"greedy_reward": sum(rewards) / len(rewards)} if rewards else {}
    if "val/loss" in metrics:
        result["greedy_loss"] = metrics["val/loss"]
    return {name: value for name, value in result.items() if math.isfinite(value)}
