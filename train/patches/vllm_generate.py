"""vLLM's `generate` for TRL, without the Python objects that TRL does not read.

vLLM's scheduler and its outputs are Python: with a small model they, not the GPU, limit the sampling rate.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from patches.context import PatchContext
from patches.trl_single_pass import SinglePassTrainer
from patches.vllm_logprobs import store_logprobs
from patches.vllm_multi_step import multi_step_scheduling


def apply(context: PatchContext) -> bool:
    """Patch the vLLM engine of the trainer; False before TRL 0.28."""
    return patch_generate(context.trainer, context.settings, multi_step=context.multi_step)


def patch_generate(trainer: Any, settings: Mapping[str, Any], *, multi_step: bool) -> bool:
    """Return log-probabilities as plain numbers, pause garbage collection, and invalidate the prefix cache by a salt.

    With the correction enabled, log-probabilities come from a LogprobStore; an engine in another process returns them
    as vLLM's flat_logprobs. With it disabled, vLLM computes none.

    After a weight sync, prompts get another cache salt: vLLM's reset_prefix_cache walks all blocks of its cache,
    200,000 and more.
    """
    generation = getattr(trainer, "vllm_generation", None)
    if getattr(generation, "mode", "") != "colocate" or not hasattr(generation, "logprobs"):
        return False
    if not settings["vllm_importance_sampling_correction"]:
        generation.logprobs = None
    sampler, generate = LeanGenerate(generation.llm, multi_step=multi_step), generation.generate

    def generate_lean(*arguments: Any, **named: Any) -> tuple[Any, Any, Any, Any]:
        prompts, completions, logprobs, ids = generate(*arguments, **named)
        rows = sampler.logprobs
        if generation.logprobs is None:
            rows = [[math.nan] * len(completion) for completion in completions]  # vLLM's value for "unknown"
        if isinstance(trainer, SinglePassTrainer):  # makes one tensor; TRL makes one per row
            trainer.sampled_logprobs = rows
            logprobs = [[] for _ in rows] or logprobs
        elif rows:
            logprobs = [[[number] for number in row] for row in rows]
        return prompts, completions, logprobs, ids

    generation.llm.generate, generation.generate = sampler, generate_lean
    generation.llm.reset_prefix_cache = sampler.reset_prefix_cache
    return True


class LeanGenerate:
    """Replaces `LLM.generate`; TRL requests one completion per prompt."""

    def __init__(self, llm: Any, *, multi_step: bool) -> None:
        self.llm, self.generate, self.multi_step = llm, llm.generate, multi_step
        self.uses_store = True
        # Of the last call, a row per completion; empty where the outputs contain them.
        self.logprobs: list[list[float]] = []
        self.salt = 0

    def reset_prefix_cache(self) -> bool:
        """Change the cache salt: cached blocks belong to the weights before the sync."""
        self.salt += 1
        return True

    def __call__(self, prompts: Any, sampling_params: Any, **named: Any) -> Any:
        """Call vLLM's `generate`; the log-probabilities are in `logprobs`."""
        flat = sampling_params.logprobs == 0 and hasattr(sampling_params, "flat_logprobs")  # from vLLM 0.12
        if flat:
            sampling_params.flat_logprobs = True
        prompts = [{**prompt, "cache_salt": str(self.salt)} for prompt in prompts]
        uses_store = flat and self.uses_store
        multi_step = self.multi_step and (uses_store or sampling_params.logprobs is None)
        scheduling = multi_step_scheduling(self.llm, sampling_params) if multi_step else nullcontext()
        with gc_disabled(), scheduling, store_logprobs(self.llm) if uses_store else nullcontext() as store:
            outputs = self.generate(prompts, sampling_params, **named)
        completions = [output.outputs[0] for output in outputs]
        self.logprobs = []
        if store:
            rows = store.read([(output.request_id, list(output.outputs[0].token_ids)) for output in outputs])
            self.logprobs = [
                row or [math.nan] * len(completion.token_ids)
                for row, completion in zip(rows, completions, strict=True)
            ]
            # A row without its tokens: unknown here, and taken from vLLM's own outputs in the next call.
            self.uses_store = None not in rows
        elif flat:
            self.logprobs = [completion.logprobs.logprobs for completion in completions]
        for completion in completions if flat else []:
            completion.logprobs = None
        return outputs


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection: each run would walk all objects made since, many times per second."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
