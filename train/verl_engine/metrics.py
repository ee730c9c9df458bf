"""verl's numbers as ours: the lines of its console or its JSON file, as columns of metrics.csv and as looks. Pure."""

from __future__ import annotations

import json
import math
import re

# Ray colours a worker's line and says whose it is: "\x1b[36m(TaskRunner pid=71)\x1b[0m step:1 - actor/lr:1e-06".
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CONSOLE = re.compile(r"(?:^|\s)step:(\d+) - (\S.*)$")
NUMBER = re.compile(r"(?:np\.\w+\()?(-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan))\)?", re.IGNORECASE)
TOTAL = re.compile(r"Total training steps: (\d+)")

# Ours by verl's, the first that is there. trainer/ppo/metric_utils.py, workers/actor/dp_actor.py, ray_trainer.py.
RL = {
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
    "memory_gib": ("perf/max_memory_allocated_gb", "actor/perf/max_memory_allocated_gb"),  # by its worker from 0.9.0
}
SFT = {
    "loss": ("train/loss",),
    "grad_norm": ("train/grad_norm",),
    "learning_rate": ("train/lr",),
    "tokens": ("train/global_tokens",),
    "seconds": ("train/time(s)",),
    "memory_gib": ("perf/max_memory_allocated_gb",),  # where that version says it
}
UPDATES = ("timing_s/update_actor", "timing_s/update_critic")
# Of the answers that verl dumps: verl_engine/generations.py.
SPREAD = ("reward_std", "frac_reward_zero_std")
COLUMNS = [
    "reward", "reward_std", "frac_reward_zero_std", "loss", "critic_loss", "grad_norm", "learning_rate", "entropy",
    "kl", "completion_length", "truncated", "tokens", "tokens_per_second", "seconds", "generate_seconds",
    "score_seconds", "update_seconds", "sync_seconds", "memory_gib",
]  # fmt: skip
SMOOTHED = {"sft": ["loss"], "ppo": ["reward"], "grpo": ["reward"]}

Numbers = dict[str, float]


def header(task: str) -> list[str]:
    """The columns of metrics.csv."""
    only_rl = set(RL) - set(SFT) | {"update_seconds", *SPREAD}
    smooth = [f"{name}_smooth" for name in SMOOTHED[task]]
    return ["step", *smooth, *(name for name in COLUMNS if task != "sft" or name not in only_rl)]


def parse_console(line: str) -> tuple[int, Numbers] | None:
    r"""A line of verl's LocalLogger.

    Sample: "(TaskRunner pid=71) step:3 - actor/lr:1e-06 - val-core/openai/gsm8k/reward/mean@1:np.float64(0.25)"
    -> (3, {"actor/lr": 1e-06, "val-core/openai/gsm8k/reward/mean@1": 0.25})
    """
    matched = CONSOLE.search(ANSI.sub("", line.rstrip()))
    if not matched:
        return None
    found: Numbers = {}
    for part in matched[2].split(" - "):
        name, _, text = part.rpartition(":")
        number = NUMBER.fullmatch(text.strip())
        if name and number:
            found[name] = float(number[1])
    return (int(matched[1]), found) if found else None


def parse_file(line: str) -> tuple[int, Numbers] | None:
    """A line of verl's FileLogger, which writes NaN and infinity as null: NaN here.

    Sample: {"step": 3, "data": {"train/loss": 0.5, "train/grad_norm": null}}
    """
    try:
        record = json.loads(line)
        step, data = record["step"], record["data"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(step, int) or not isinstance(data, dict):
        return None
    plain = {name: math.nan if value is None else value for name, value in data.items()}
    return step, {name: float(value) for name, value in plain.items() if isinstance(value, (int, float, bool))}


def parse_total(line: str) -> int:
    """The steps that verl counts, 0 for any other line. Sample: "Total training steps: 435" -> 435."""
    matched = TOTAL.search(line)
    return int(matched[1]) if matched else 0


def correct_cuts(numbers: Numbers, longest: int) -> Numbers:
    """Without answers that only seem cut: from 0.9.0 verl compares them with the step's longest, not with the limit.

    Sample, for a limit of 48: {"response_length/max": 21, "response_length/clip_ratio": 1} -> the ratio is 0
    """
    if not numbers.get("response_length/max", longest) < longest:
        return numbers
    return numbers | {"response_length/clip_ratio": 0.0}


def given_numbers(task: str, numbers: Numbers) -> Numbers:
    """What verl gave, by our names, as the alarms take it: NaN and infinity among it. Empty for a look's alone."""
    names = SFT if task == "sft" else RL
    there = ((ours, next((name for name in theirs if name in numbers), "")) for ours, theirs in names.items())
    return {ours: numbers[name] for ours, name in there if name}


def step_numbers(task: str, numbers: Numbers, gpus: int) -> dict[str, float | None]:
    """A step's numbers in our columns; empty where these are a look's alone."""
    given = given_numbers(task, numbers)
    if not given:
        return {}  # a loss that is no number is a step all the same
    values = {ours: given.get(ours) for ours in (SFT if task == "sft" else RL)}
    found = {ours: value if value is None or math.isfinite(value) else None for ours, value in values.items()}
    if task == "sft":
        if "train/lr(1e-3)" in numbers:  # up to 0.7.0 in thousandths
            found["learning_rate"] = numbers["train/lr(1e-3)"] / 1000
        if found["tokens"] and found["seconds"]:
            found["tokens_per_second"] = found["tokens"] / found["seconds"]
        return found
    updates = [numbers[name] for name in UPDATES if name in numbers]
    found["update_seconds"] = sum(updates) if updates else None
    if "perf/throughput" in numbers:  # tokens a second and GPU, prompts among them
        found["tokens_per_second"] = numbers["perf/throughput"] * gpus
    return found


def look_numbers(numbers: Numbers) -> Numbers:
    """What verl found on the held-out rows, greedy as it samples them unless told otherwise.

    Samples: {"val-core/openai/gsm8k/reward/mean@1": 0.25} -> {"greedy_reward": 0.25}; {"val/loss": 1.2} ->
    {"greedy_loss": 1.2}, which has no sampling in it and is drawn beside the loss.
    """
    rewards = [
        v for k, v in numbers.items() if k.startswith("val-core/") and re.search(r"/(reward|acc)/mean@\d+$", k)
    ]
    found = {"greedy_reward": sum(rewards) / len(rewards)} if rewards else {}
    if "val/loss" in numbers:
        found["greedy_loss"] = numbers["val/loss"]
    return {name: value for name, value in found.items() if math.isfinite(value)}
