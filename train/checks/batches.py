"""A step's answers among GPUs and passes, and in vLLM. Standard library only: a plan asks, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from settings import BadInput


def vllm_max_length(settings: Mapping[str, Any], longest_prompt: int, completion: int) -> int:
    """Tokens that vLLM makes room for in each answer; BadInput where the longest would not go in."""
    needed = longest_prompt + completion
    length: int = settings["vllm_max_model_length"] or needed
    if length < needed:
        raise BadInput(
            f"vllm_max_model_length = {length} for prompts of {longest_prompt} and answers of {completion}",
            expected=f"at least {needed} tokens",
            hint=f"--set vllm_max_model_length={needed}",
        )
    return length


def divisors(number: int) -> list[int]:
    """All of them, the largest first. Sample: 12 -> [12, 6, 4, 3, 2, 1]."""
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)}, reverse=True)


def check_batches(settings: Mapping[str, Any], ranks: int) -> tuple[int, int]:
    """(answers a GPU and step, answers a pass); BadInput where they do not come out even."""
    answers = settings["prompts_per_step"] * settings["num_generations"]
    if answers % ranks:
        raise BadInput(
            f"{answers} answers a step (prompts_per_step * num_generations) on {ranks} GPUs",
            expected=f"a multiple of {ranks}",
            hint=f"--set prompts_per_step={math.ceil(settings['prompts_per_step'] / ranks) * ranks}",
        )
    each = answers // ranks
    micro = settings["micro_batch"] or each
    if each % micro:
        raise BadInput(
            f"micro_batch = {micro} for {each} answers a GPU ({answers} on {ranks})",
            expected=f"a divisor of {each}",
            hint=f"--set micro_batch={math.gcd(each, micro)}",
        )
    together = settings["vllm_tensor_parallel"]
    if ranks % together:
        raise BadInput(
            f"vllm_tensor_parallel = {together} on {ranks} GPUs",
            expected=f"a divisor of {ranks}",
            hint="--set vllm_tensor_parallel=1",
        )
    return each, micro
