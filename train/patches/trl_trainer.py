"""GRPO with vLLM in this process: what TRL does twice is done once, and what nobody reads is not made."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from packaging.version import Version
from patches.vllm_logprobs import storing_logprobs
from patches.vllm_multi_step import multi_step_scheduling
from trl import GRPOTrainer
from trl_config.arguments import InstalledVersions


class SinglePassTrainer(GRPOTrainer):
    """TRL's trainer without its second pass over the answers.

    TRL weighs what vLLM sampled by how much likelier the model itself finds it (its importance-sampling correction),
    and runs the model once over all answers to know. Where each optimizer step learns from answers of its own, the
    pass that learns computes the same log-probabilities, and the weights are taken from there.
    """

    learnt_from: dict[str, Any] | None = None
    said: Sequence[Sequence[float]] = ()  # vLLM's log-probabilities, an answer a row; none: TRL was handed them

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        asked, self.vllm_importance_sampling_correction = self.vllm_importance_sampling_correction, False
        try:
            found = super()._generate_and_score_completions(inputs)
        finally:
            self.vllm_importance_sampling_correction = asked
        if self.said:
            found["sampling_per_token_logps"] = beside(found["completion_ids"], self.said)
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.learnt_from = inputs
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.learnt_from = None

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*arguments, **named)
        if self.learnt_from is not None:
            weights, difference = importance_weights(found[0].detach(), self.learnt_from, self)
            self.learnt_from["importance_sampling_ratio"] = weights
            mean = self.accelerator.gather(difference).mean().item()
            self._metrics["train"]["sampling/sampling_logp_difference/mean"].append(mean)
        return found


def choose_trainer_class(settings: Mapping[str, Any], installed: InstalledVersions) -> type[GRPOTrainer]:
    """The trainer for these settings."""
    return SinglePassTrainer if uses_single_pass(settings, installed) else GRPOTrainer


def uses_single_pass(settings: Mapping[str, Any], installed: InstalledVersions) -> bool:
    """Whether SinglePassTrainer computes the same as TRL."""
    return (
        settings["generation"].startswith("vllm")
        and settings["vllm_correction"]
        and settings["num_iterations"] == 1
        and installed.has("vllm_importance_sampling_clip_max")  # from 1.9, with the log-probabilities handed on
        and not (settings["liger_loss"] and installed.trl < Version("1.14"))  # Liger's own loss is computed elsewhere
    )


def beside(ids: torch.Tensor, said: Sequence[Sequence[float]]) -> torch.Tensor:
    """A number for each token of the answers in `ids` (B, T), of which each begins its row; 0 in the padding."""
    kept = np.zeros(ids.shape, np.float32)
    for row, numbers in zip(kept, said, strict=True):
        row[: len(numbers)] = numbers
    return torch.from_numpy(kept).to(ids.device)


def importance_weights(
    ours: torch.Tensor, inputs: Mapping[str, Any], trainer: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(p_model / p_vllm of each token (B, T) or each answer (B, 1) within the limits, mean |log ratio|).

    `ours` are the model's log-probabilities (B, T). A token that vLLM gave no number for (NaN) counts as equal.
    Modes and limits are TRL's own: "token_truncate", "token_mask", "sequence_truncate", "sequence_mask".
    """
    mask = inputs["completion_mask"]
    difference = torch.nan_to_num((ours - inputs["sampling_per_token_logps"]) * mask, nan=0.0)
    mode = trainer.vllm_importance_sampling_mode
    ratio = torch.exp(difference.sum(-1, keepdim=True) if mode.startswith("sequence") else difference)
    least, most = trainer.vllm_importance_sampling_clip_min, trainer.vllm_importance_sampling_clip_max
    least, most = -math.inf if least is None else least, math.inf if most is None else most
    if mode.endswith("truncate"):
        weights = ratio.clamp(least, most)
    else:
        weights = ratio.masked_fill((ratio < least) | (ratio > most), 0.0)
    return weights, difference.abs().sum() / mask.sum().clamp(min=1)


def patch_generate(trainer: Any, settings: Mapping[str, Any]) -> None:
    """Let vLLM sample without what nobody reads: an object for each token's log-probability, collections amid it all.

    vLLM's scheduler is Python, and so are its outputs: on an H200 they, not the GPU, set the pace of a small model.
    With the correction on, the log-probabilities are kept in a store and TRL is handed plain numbers; where the
    engine has no place for one, they come as vLLM's flat_logprobs. With it off, none are asked for.

    What vLLM keeps of prompts is forgotten by another salt whenever TRL hands it new weights: vLLM itself walks all
    blocks of its cache then, 200,000 and more.
    """
    generation = getattr(trainer, "vllm_generation", None)
    if (
        getattr(generation, "mode", "") != "colocate"
        or not hasattr(generation, "logprobs")
        or settings["vllm_tensor_parallel"] > 1  # ranks gather their answers before TRL reads them
    ):
        return
    if not settings["vllm_correction"]:
        generation.logprobs = None
    sampler, generate = LeanGenerate(generation.llm), generation.generate

    def generate_lean(*arguments: Any, **named: Any) -> tuple[Any, Any, Any, Any]:
        prompts, answers, numbers, ids = generate(*arguments, **named)
        said = sampler.said
        if generation.logprobs is None:
            said = [[math.nan] * len(answer) for answer in answers]  # as vLLM says "unknown"
        if isinstance(trainer, SinglePassTrainer):  # makes one tensor of all, TRL one of each row
            trainer.said = said
            numbers = [[] for _ in said] or numbers
        elif said:
            numbers = [[[number] for number in row] for row in said]
        return prompts, answers, numbers, ids

    generation.llm.generate, generation.generate = sampler, generate_lean
    generation.llm.reset_prefix_cache = sampler.forget


class LeanGenerate:
    """vLLM's `generate` for TRL, which asks for one answer a prompt."""

    def __init__(self, llm: Any) -> None:
        self.llm, self.generate = llm, llm.generate
        self.keeps = True  # in a store
        self.said: list[list[float]] = []  # log-probabilities by the last call, an answer a row; none: in its answers
        self.salt = 0  # of what is kept of prompts

    def forget(self) -> bool:
        """What is kept of prompts is of other weights now."""
        self.salt += 1
        return True

    def __call__(self, prompts: Any, sampling_params: Any, **named: Any) -> Any:
        """As vLLM's, but with the log-probabilities in `said`."""
        flat = sampling_params.logprobs == 0 and hasattr(sampling_params, "flat_logprobs")  # from vLLM 0.12 on
        if flat:
            sampling_params.flat_logprobs = True
        prompts = [{**prompt, "cache_salt": str(self.salt)} for prompt in prompts]
        keeps = flat and self.keeps
        many = (
            multi_step_scheduling(self.llm, sampling_params)
            if keeps or sampling_params.logprobs is None
            else nullcontext()
        )
        with gc_disabled(), many, storing_logprobs(self.llm) if keeps else nullcontext() as store:
            found = self.generate(prompts, sampling_params, **named)
        answers = [one.outputs[0] for one in found]
        self.said = []
        if store:
            rows = store.read([(one.request_id, list(one.outputs[0].token_ids)) for one in found])
            self.said = [row or [math.nan] * len(answer.token_ids) for row, answer in zip(rows, answers, strict=True)]
            self.keeps = (
                None not in rows
            )  # not made as is known: these count as unknown, and vLLM itself tells the next
        elif flat:
            self.said = [answer.logprobs.logprobs for answer in answers]
        for answer in answers if flat else []:
            answer.logprobs = None
        return found


@contextmanager
def gc_disabled() -> Iterator[None]:
    """No cycle is looked for inside: each search would walk all that was made since, many times a second."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
