"""Completions per step, GPU and micro-batch, and vLLM's length. Standard library only, for the memory plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from settings import BadInput


def vllm_max_length(settings: Mapping[str, Any], longest_prompt: int, completion: int) -> int:
    """vLLM's max_model_len; BadInput where the longest prompt and completion exceed it."""
    needed = longest_prompt + completion
    length: int = settings["vllm_max_model_length"] or needed
    if length < needed:
        raise BadInput(
            f"vllm_max_model_length = {length} for prompts of {longest_prompt} and completions of {completion}",
            expected=f"at least {needed} tokens",
            hint=f"--set vllm_max_model_length={needed}",
        )
    return length


def divisors(number: int) -> list[int]:
    """All divisors, the largest first. Sample: 12 -> [12, 6, 4, 3, 2, 1]."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)}, reverse=True)


def check_batches(settings: Mapping[str, Any], ranks: int) -> tuple[int, int]:
    """(completions per GPU and step, micro-batch); BadInput where one is not a divisor of the other."""
    completions = settings["prompts_per_step"] * settings["num_generations"]
    if completions % ranks:
        raise BadInput(
            f"{completions} completions per step (prompts_per_step * num_generations) on {ranks} GPUs",
            expected=f"a multiple of {ranks}",
            hint=f"--set prompts_per_step={math.ceil(settings['prompts_per_step'] / ranks) * ranks}",
        )
    per_gpu = completions // ranks
    micro = settings["per_device_train_batch_size"] or per_gpu
    if per_gpu % micro:
        raise BadInput(
            f"per_device_train_batch_size = {micro} for {per_gpu} completions per GPU "
            f"({completions} on {ranks} GPUs)",
            expected=f"a divisor of {per_gpu}",
            hint=f"--set per_device_train_batch_size={math.gcd(per_gpu, micro)}",
        )
    tensor_parallel = settings["vllm_tensor_parallel_size"]
    if ranks % tensor_parallel:
        raise BadInput(
            f"vllm_tensor_parallel_size = {tensor_parallel} on {ranks} GPUs",
            expected=f"a divisor of {ranks}",
            hint="--set vllm_tensor_parallel_size=1",
        )
    return per_gpu, micro


def apply_accumulation(settings: dict[str, Any], given: Mapping[str, Any], ranks: int) -> None:
    """Set prompts_per_step by gradient_accumulation_steps, where that is set; `given` has the user's settings."""
    passes, size = settings["gradient_accumulation_steps"], settings["per_device_train_batch_size"]
    if not passes or not size:  # without a size of the passes it is refused
        return
    group = settings["num_generations"]
    prompts, rest = divmod(size * passes * ranks, group)
    for_one = size * passes // group  # what run.json has: the number of processes is known to the launcher alone
    if rest:
        raise BadInput(
            f"gradient_accumulation_steps = {passes} with per_device_train_batch_size = {size} on {ranks} GPUs: "
            f"{size * passes * ranks} completions per step",
            expected=f"a multiple of num_generations = {group}",
            hint=f"--set gradient_accumulation_steps={math.ceil(passes / group) * group}",
        )
    if given.get("prompts_per_step", prompts) not in (prompts, for_one):
        raise BadInput(
            f"prompts_per_step = {given['prompts_per_step']} with gradient_accumulation_steps = {passes}, "
            f"which make {prompts} prompts per step",
            expected="one of the two",
            hint="leave prompts_per_step out",
        )
    settings["prompts_per_step"] = prompts


def completions_per_generation(settings: Mapping[str, Any], ranks: int) -> int:
    """The completions that are sampled at once over all GPUs."""
    step = int(settings["prompts_per_step"] * settings["num_generations"])
    passes = settings["steps_per_generation"]
    size = int(settings["generation_batch_size"] or passes * settings["per_device_train_batch_size"] * ranks or step)
    if settings["generation_batch_size"] and passes:
        raise BadInput(
            f"generation_batch_size = {settings['generation_batch_size']} with steps_per_generation = {passes}",
            expected="one of the two",
            hint="leave steps_per_generation out",
        )
    if (size % step and step % size) or size % settings["num_generations"]:
        name = "steps_per_generation" if passes else "generation_batch_size"
        raise BadInput(
            f"{name} = {settings[name]}: {size} completions per generation for {step} per step",
            expected=f"a multiple or a divisor of {step} completions, in groups of {settings['num_generations']}",
            hint=f"--set {name}=0",
        )
    return size


def updates_per_generation(settings: Mapping[str, Any], ranks: int) -> int:
    """The optimizer steps that use the same sampled completions."""
    step = settings["prompts_per_step"] * settings["num_generations"]
    return max(1, completions_per_generation(settings, ranks) // step) * int(settings["num_iterations"])


def count_steps(settings: Mapping[str, Any], prompts: int, ranks: int = 1) -> int:
    """The optimizer steps of a run, as transformers counts them; TRL drops an incomplete batch of prompts."""
    if settings["max_steps"] > 0:
        return int(settings["max_steps"])
    sampled = completions_per_generation(settings, ranks) // settings["num_generations"]
    generations = prompts // sampled
    per_epoch = max(1, generations * sampled * settings["num_iterations"] // settings["prompts_per_step"])
    return math.ceil(settings["num_train_epochs"] * per_epoch)
