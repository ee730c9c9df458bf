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


def count_steps(settings: Mapping[str, Any], prompts: int) -> int:
    """The optimizer steps of a run, as transformers counts them; TRL drops an incomplete batch of prompts."""
    if settings["max_steps"] > 0:
        return int(settings["max_steps"])
    per_epoch = max(1, prompts // settings["prompts_per_step"] * settings["num_iterations"])
    return math.ceil(settings["num_train_epochs"] * per_epoch)
