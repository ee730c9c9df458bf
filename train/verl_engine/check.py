"""Settings of a run by verl that do not go together. Standard library only."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from run.alarms import NAMES
from settings import BadInput, Conflict, expand_user
from verl_engine.alarms import alarms_of

FILE = "verl_settings.toml"
REPORTERS = ("tensorboard", "wandb", "mlflow", "swanlab", "trackio")


def find_conflicts(settings: Mapping[str, Any]) -> list[Conflict]:
    """What is seen, what is expected, a way out."""
    found: list[Conflict] = []
    if not settings["model"]:
        found.append(("model is empty", "a folder or a hub name", "--set model=Qwen/Qwen2.5-0.5B-Instruct"))
    if settings["task"] != "sft":
        found += _rl(settings)
    never = [name for name in settings["stop_on"] if name in NAMES and name not in alarms_of(settings["task"])]
    if never:
        found.append((
            f"stop_on = {', '.join(never)}, which {settings['task']} never raises",
            f"some of {', '.join(alarms_of(settings['task']))}", "--set stop_on=not-a-number",
        ))  # fmt: skip
    if settings["epsilon_high"] and settings["epsilon_high"] < settings["epsilon"]:
        found.append((
            f"epsilon_high = {settings['epsilon_high']} below epsilon = {settings['epsilon']}",
            "0 (the same as epsilon) or more than epsilon", "--set epsilon_high=0.28",
        ))  # fmt: skip
    for name in settings["report_to"]:
        if name not in REPORTERS:
            near = difflib.get_close_matches(name, REPORTERS, 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            found.append((f"report_to = {name!r}{meant}", ", ".join(REPORTERS), "leave it out"))
    return found


def _rl(settings: Mapping[str, Any]) -> list[Conflict]:
    found: list[Conflict] = []
    prompts, mini = settings["prompts_per_step"], settings["mini_batch"]
    if prompts % mini:
        divisors = [number for number in range(1, prompts + 1) if prompts % number == 0]
        found.append((
            f"mini_batch = {mini} for {prompts} prompts a step", f"a divisor of prompts_per_step = {prompts}",
            f"--set mini_batch={min(divisors, key=lambda number: abs(number - mini))}",
        ))  # fmt: skip
    if settings["task"] == "grpo" and settings["num_generations"] < 2:
        found.append((
            "num_generations = 1: GRPO compares the answers to a prompt with each other", "2 or more",
            "--set num_generations=5",
        ))  # fmt: skip
    if settings["merge"] and not settings["save_every"]:
        found.append((
            "merge = true with save_every = 0: verl saves nothing to merge", "save_every above 0",
            "--set save_every=10, or --set merge=false",
        ))  # fmt: skip
    path, colon, name = settings["reward_function"].rpartition(":")
    if settings["reward_function"] and not (colon and path.endswith(".py") and name.isidentifier()):
        found.append((
            f"reward_function = {settings['reward_function']!r}", "FILE.py:function",
            "--set reward_function=/path/reward.py:compute_score",
        ))  # fmt: skip
    return found


def find_reward(given: str) -> str:
    """FILE.py:function with an absolute path: verl's processes start elsewhere."""
    if not given:
        return ""
    path, _, name = given.rpartition(":")
    file = expand_user(path).resolve()
    if not file.is_file():
        raise BadInput(
            f"settings: reward_function = {given}: there is no file {file}", expected="FILE.py:function",
            hint="--set reward_function=/path/reward.py:compute_score",
        )  # fmt: skip
    return f"{file}:{name}"
