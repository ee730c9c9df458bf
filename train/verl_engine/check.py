"""Conflicts between the settings of a verl run. Standard library only."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from run.alarms import NAMES
from settings import BadInput, Conflict, expand_user
from verl_engine.alarms import task_alarms

FILE = "verl_settings.toml"
REPORTERS = ("tensorboard", "wandb", "mlflow", "swanlab", "trackio")


def find_conflicts(settings: Mapping[str, Any]) -> list[Conflict]:
    """Return the conflicts as (problem, expected, hint)."""
    conflicts: list[Conflict] = []
    if not settings["model"]:
        conflicts.append(
            ("model is empty", "a directory or a name on the Hub", "--set model=Qwen/Qwen2.5-0.5B-Instruct")
        )
    if settings["task"] != "sft":
        conflicts += _find_rl_conflicts(settings)
    unsupported = [
        name for name in settings["stop_on"] if name in NAMES and name not in task_alarms(settings["task"])
    ]
    if unsupported:
        conflicts.append((
            f"stop_on = {', '.join(unsupported)}: {settings['task']} does not have these alarms",
            f"one or more of {', '.join(task_alarms(settings['task']))}", "--set stop_on=not-a-number",
        ))  # fmt: skip
    if settings["epsilon_high"] and settings["epsilon_high"] < settings["epsilon"]:
        conflicts.append((
            f"epsilon_high = {settings['epsilon_high']} below epsilon = {settings['epsilon']}",
            "0 (the same as epsilon) or more than epsilon", "--set epsilon_high=0.28",
        ))  # fmt: skip
    for name in settings["report_to"]:
        if name not in REPORTERS:
            matches = difflib.get_close_matches(name, REPORTERS, 1)
            meant = f" (did you mean {matches[0]!r}?)" if matches else ""
            conflicts.append((f"report_to = {name!r}{meant}", ", ".join(REPORTERS), "remove it from report_to"))
    return conflicts


def _find_rl_conflicts(settings: Mapping[str, Any]) -> list[Conflict]:
    conflicts: list[Conflict] = []
    prompts, mini = settings["prompts_per_step"], settings["mini_batch"]
    if prompts % mini:
        divisors = [number for number in range(1, prompts + 1) if prompts % number == 0]
        conflicts.append((
            f"mini_batch = {mini} for {prompts} prompts per step", f"a divisor of prompts_per_step = {prompts}",
            f"--set mini_batch={min(divisors, key=lambda number: abs(number - mini))}",
        ))  # fmt: skip
    if settings["task"] == "grpo" and settings["num_generations"] < 2:
        conflicts.append((
            "num_generations = 1: GRPO compares the completions of a prompt with each other", "2 or more",
            "--set num_generations=5",
        ))  # fmt: skip
    if settings["merge"] and not settings["save_steps"]:
        conflicts.append((
            "merge = true with save_steps = 0: there is no checkpoint to merge", "save_steps above 0",
            "--set save_steps=10, or --set merge=false",
        ))  # fmt: skip
    path, colon, name = settings["reward_function"].rpartition(":")
    if settings["reward_function"] and not (colon and path.endswith(".py") and name.isidentifier()):
        conflicts.append((
            f"reward_function = {settings['reward_function']!r}", "FILE.py:function",
            "--set reward_function=/path/reward.py:compute_score",
        ))  # fmt: skip
    return conflicts


def resolve_reward_function(name: str) -> str:
    """Return FILE.py:function with an absolute path, since verl's processes start in other directories."""
    if not name:
        return ""
    path, _, function = name.rpartition(":")
    file = expand_user(path).resolve()
    if not file.is_file():
        raise BadInput(
            f"settings: reward_function = {name}: no such file {file}", expected="FILE.py:function",
            hint="--set reward_function=/path/reward.py:compute_score",
        )  # fmt: skip
    return f"{file}:{function}"
