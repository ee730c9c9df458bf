"""Held-out answers by what samples in training, many times faster than `generate`: vLLM here, or its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from patches.vllm_multi_step import multi_step_scheduling
from run.ranks import Ranks


@dataclass(frozen=True)
class Colocated:
    """The run's own vLLM in this process."""

    llm: Any
    take_up: Callable[[], None]  # hands it the weights as they are now

    def answer(
        self, prompts: Sequence[list[int]], *, length: int, temperature: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """One answer a prompt, in tokens, as `looking.answer`; the training's random state is left as it was."""
        if not prompts:
            return []
        from vllm import SamplingParams

        asked = SamplingParams(temperature=temperature, max_tokens=length, detokenize=False)
        with torch.random.fork_rng(), multi_step_scheduling(self.llm, asked):
            torch.manual_seed(seed)
            found = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], asked, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in found]


@dataclass(frozen=True)
class Served:
    """The vLLM server that samples for the run. The first rank asks it for all, since TRL connects that one alone."""

    client: Any  # TRL's, where there is one
    take_up: Callable[[], None]  # hands it the weights as they are now
    ranks: Ranks

    def answer(
        self, prompts: Sequence[list[int]], *, length: int, temperature: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """One answer a prompt, in tokens; every rank calls it, also with no prompt.

        `seed` is not handed on: a server that is given one samples the same answer for each row of one prompt.
        """
        del seed
        asked = self.ranks.gather([list(prompts)])
        every = [ids for part in asked for ids in part]
        found: list[list[int]] = []
        if self.client and every:
            found = self.client.generate(every, temperature=temperature, max_tokens=length)["completion_ids"]
        found = self.ranks.gather(found)
        before = sum(map(len, asked[: self.ranks.rank]))
        return found[before : before + len(prompts)]


def choose_evaluation_engine(trainer: Any, settings: Mapping[str, Any], ranks: Ranks) -> Colocated | Served | None:
    """What answers in the model's place; None where vLLM sleeps, GPUs share one, or TRL before 0.28 asks a server."""
    generation = getattr(trainer, "vllm_generation", None)  # an object of its own from TRL 0.28
    if settings["generation"] == "vllm-server" and generation is not None:
        return Served(getattr(generation, "vllm_client", None), generation.sync_weights, ranks)
    if settings["generation"] != "vllm-colocate" or settings["vllm_sleep"] or settings["vllm_tensor_parallel"] > 1:
        return None
    if generation is not None:
        return Colocated(generation.llm, generation.sync_weights)
    return Colocated(trainer.llm, trainer._move_model_to_vllm)  # noqa: SLF001
