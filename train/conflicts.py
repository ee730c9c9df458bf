"""Combinations of settings that cannot work. Standard library only."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from messages import Conflict, shorten, suggest

REPORTERS = ("tensorboard", "trackio", "wandb")
TARGETED = ("galore", "apollo")  # optimizers of projected gradients
REPOSITORY = re.compile(r"(\b[\w\-.]+\b/)?\b[\w\-.]{1,96}\b")


def repository_conflicts(settings: Mapping[str, Any]) -> list[Conflict]:
    """Check hub_model_id before the training by the rule of huggingface_hub (validate_repo_id)."""
    name = settings["hub_model_id"]
    odd = "--" in name or ".." in name or name.endswith(".git")
    if not name or (REPOSITORY.fullmatch(name) and not odd):
        return []
    return [(f"hub_model_id = {name!r}", "OWNER/NAME of letters, digits, - _ and .", "--set hub_model_id=OWNER/NAME")]


def find_conflicts(settings: Mapping[str, Any]) -> list[Conflict]:
    """Combinations of settings that cannot work."""
    checks = [_model_conflicts, _step_conflicts]
    if settings["trainer"] == "grpo":
        checks += [_completion_conflicts, _loss_conflicts, _generation_conflicts]
    return [conflict for find in checks for conflict in find(settings)]


def _model_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    hidden, heads = settings["hidden_size"], settings["heads"]
    if hidden % (2 * heads):
        yield (
            f"hidden_size = {hidden} with heads = {heads}",
            "hidden_size is a multiple of 2 * heads: rotary embeddings need heads of an even width",
            f"--set hidden_size={2 * heads * max(1, round(hidden / (2 * heads)))}",
        )
    if settings["load_in_4bit"] and settings["load_in_8bit"]:
        yield ("load_in_4bit = true with load_in_8bit = true", "one of them", "--set load_in_8bit=false")
    if settings["task"] == "dataset" and not settings["model"]:
        yield ("model is empty", "a directory or a Hub name", "--set model=Qwen/Qwen2.5-0.5B-Instruct")


def _step_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    steps, warm_up = settings["max_steps"], settings["warmup_steps"]
    if 0 < steps <= warm_up:
        yield (
            f"warmup_steps = {warm_up} of {steps} steps: the learning rate would never be reached",
            "a warm-up that ends before the last step",
            f"--set warmup_steps={steps // 10}",
        )
    if settings["optim"].startswith(TARGETED) and not settings.get("optim_target_modules"):
        yield (
            f"optim = {settings['optim']} without optim_target_modules",
            "the modules whose gradients it projects",
            "--set optim_target_modules=all-linear",
        )
    unknown = [name for name in settings["report_to"] if name not in REPORTERS]
    if unknown:
        yield (f"report_to = {unknown[0]!r}{suggest(unknown[0], REPORTERS)}", ", ".join(REPORTERS), "leave it out")


def _completion_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    completions = settings["prompts_per_step"] * settings["num_generations"]
    size = settings["per_device_train_batch_size"]
    if size and completions % size:
        yield (
            f"per_device_train_batch_size = {size} for {completions} completions per step",
            f"a divisor of prompts_per_step * num_generations = {completions}",
            f"--set per_device_train_batch_size={math.gcd(completions, size)}",
        )
    every, updates = settings["save_steps"], settings["num_iterations"]
    if every % updates:
        yield (
            f"save_steps = {every} with num_iterations = {updates}",
            "a multiple of num_iterations: a checkpoint does not contain the completions of a started step",
            f"--set save_steps={math.ceil(every / updates) * updates}",  # rounded up: 0 would save none
        )


def _loss_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    kind, low, high = settings["loss_type"], settings["epsilon"], settings["epsilon_high"]
    if kind == "cispo" and high < 1:
        yield (
            f"loss_type = cispo with epsilon_high = {high}: the importance ratio itself is clamped to it",
            "at least 1; the CISPO paper uses 5",
            "--set epsilon_high=5",
        )
    elif high and high < low:
        yield (
            f"epsilon_high = {high} below epsilon = {low}",
            "0 (the same as epsilon) or more than epsilon",
            f"--set epsilon_high={max(low, 0.28)}",
        )


def _generation_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    engines = ("use_vllm", "cuda_graph_decoding", "use_transformers_continuous_batching")
    chosen = [name for name in engines if settings[name]]
    if len(chosen) > 1:
        yield (f"{chosen[0]} = true with {chosen[1]} = true", "one sampling engine", f"--set {chosen[1]}=false")
    host = settings["vllm_server_host"]
    if not re.fullmatch(r"[\w.:-]+", host):
        yield (
            f"vllm_server_host = {shorten(repr(host))}",
            "a host name or address",
            "--set vllm_server_host=localhost",
        )
    if settings["use_vllm"] and not settings["model"]:
        yield (
            "use_vllm = true with the tiny model",
            "a model from a directory or a Hub: vLLM loads it by its name",
            "--set use_vllm=false",
        )
