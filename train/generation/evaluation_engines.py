"""vLLM engines for the evaluation, much faster than `generate`: the run's own vLLM, or its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from checks.engines import sampling_engine
from patches.vllm_multi_step import multi_step_scheduling
from run.ranks import Ranks


@dataclass(frozen=True)
class Colocated:
    """The vLLM engine in this process."""

    llm: Any
    sync_weights: Callable[[], None]
    multi_step: bool = False

    def generate(
        self, prompts: Sequence[list[int]], *, length: int, temperature: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """One completion per prompt, in tokens, as `evaluation.generate`; restores the training's random state."""
        if not prompts:
            return []
        from vllm import SamplingParams

        params = SamplingParams(temperature=temperature, max_tokens=length, detokenize=False)
        scheduling = multi_step_scheduling(self.llm, params) if self.multi_step else nullcontext()
        with torch.random.fork_rng(), scheduling:
            torch.manual_seed(seed)
            outputs = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


@dataclass(frozen=True)
class Served:
    """The vLLM server of the run. Rank 0 sends all requests: TRL connects no other rank."""

    client: Any  # TRL's; none on other ranks
    sync_weights: Callable[[], None]
    ranks: Ranks

    def generate(
        self, prompts: Sequence[list[int]], *, length: int, temperature: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """One completion per prompt, in tokens; every rank calls it, also without prompts.

        The seed is not used: with one, a server samples the same completion for equal prompts.
        """
        del seed
        parts = self.ranks.gather([list(prompts)])
        all_prompts = [ids for part in parts for ids in part]
        completions: list[list[int]] = []
        if self.client and all_prompts:
            response = self.client.generate(all_prompts, temperature=temperature, max_tokens=length)
            completions = response["completion_ids"]
        completions = self.ranks.gather(completions)
        start = sum(map(len, parts[: self.ranks.rank]))
        return completions[start : start + len(prompts)]


def choose_evaluation_engine(
    trainer: Any, settings: Mapping[str, Any], ranks: Ranks, *, multi_step: bool = False
) -> Colocated | Served | None:
    """The engine for the evaluation. None: the model itself generates.

    That is without vLLM, with vllm_enable_sleep_mode or vllm_tensor_parallel_size, and with a server before TRL 0.28.
    """
    generation = getattr(trainer, "vllm_generation", None)  # from TRL 0.28
    if sampling_engine(settings) == "vllm-server" and generation is not None:
        return Served(getattr(generation, "vllm_client", None), generation.sync_weights, ranks)
    if (
        sampling_engine(settings) != "vllm-colocate"
        or settings["vllm_enable_sleep_mode"]
        or settings["vllm_tensor_parallel_size"] > 1
    ):
        return None
    if generation is not None:
        return Colocated(generation.llm, generation.sync_weights, multi_step)
    return Colocated(trainer.llm, trainer._move_model_to_vllm, multi_step)  # noqa: SLF001
