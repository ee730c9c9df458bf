"""GRPO with vLLM in this process: what TRL does twice, or weight by weight, is done once."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from packaging.version import Version
from running.bursts import in_bursts
from running.ledger import keeping
from running.trl_fields import Installed
from trl import GRPOTrainer


class ScoredOnce(GRPOTrainer):
    """TRL's trainer without its second pass over the answers.

    TRL weighs what vLLM sampled by how much likelier the model itself finds it (its importance-sampling correction),
    and runs the model once over all answers to know. Where each optimizer step learns from answers of its own, the
    pass that learns computes the same log-probabilities, and the weights are taken from there.
    """

    learnt_from: dict[str, Any] | None = None

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        asked, self.vllm_importance_sampling_correction = self.vllm_importance_sampling_correction, False
        try:
            return super()._generate_and_score_completions(inputs)
        finally:
            self.vllm_importance_sampling_correction = asked

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.learnt_from = inputs
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.learnt_from = None

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*arguments, **named)
        if self.learnt_from is not None:
            weights, difference = weigh(found[0].detach(), self.learnt_from, self)
            self.learnt_from["importance_sampling_ratio"] = weights
            mean = self.accelerator.gather(difference).mean().item()
            self._metrics["train"]["sampling/sampling_logp_difference/mean"].append(mean)
        return found


def trainer_of(settings: Mapping[str, Any], installed: Installed) -> type[GRPOTrainer]:
    """The trainer for these settings."""
    return ScoredOnce if scores_once(settings, installed) else GRPOTrainer


def scores_once(settings: Mapping[str, Any], installed: Installed) -> bool:
    """Whether ScoredOnce computes what TRL would: vLLM samples, the correction is on, and nothing is learnt twice."""
    return (
        settings["generation"].startswith("vllm")
        and settings["vllm_correction"]
        and settings["num_iterations"] == 1
        and installed.has("vllm_importance_sampling_clip_max")  # from 1.9, with the log-probabilities handed on
        and not (settings["liger_loss"] and installed.trl < Version("1.14"))  # Liger's own loss is computed elsewhere
    )


def weigh(ours: torch.Tensor, inputs: Mapping[str, Any], trainer: Any) -> tuple[torch.Tensor, torch.Tensor]:
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


def hand_over_at_once(trainer: Any) -> None:
    """One call of vLLM's load_weights for all weights; TRL makes one for each, in which vLLM lists all of its own.

    The weights stay a stream: merged adapters and gathered shards are never held all together.
    """
    generation = getattr(trainer, "vllm_generation", None)
    if getattr(generation, "mode", "") != "colocate" or not hasattr(generation, "_iter_named_params"):
        return
    named = generation._iter_named_params  # noqa: SLF001

    def load_all() -> Iterator[tuple[str, torch.Tensor]]:
        model = generation.llm.llm_engine.model_executor.driver_worker.model_runner.model
        model.load_weights(named())
        return iter(())

    generation._iter_named_params = load_all  # noqa: SLF001


def answer_lean(trainer: Any, settings: Mapping[str, Any]) -> None:
    """Let vLLM sample without what nobody reads: an object for each token's log-probability, collections amid it all.

    vLLM's scheduler is Python, and so are its outputs: on an H200 they, not the GPU, set the pace of a small model.
    With the correction on, the log-probabilities are kept in a ledger and TRL is handed plain numbers; where the
    engine has no place for one, they come as vLLM's flat_logprobs. With it off, none are asked for.
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
    sampler, generate = LeanSampler(generation.llm), generation.generate

    def generate_lean(*arguments: Any, **named: Any) -> tuple[Any, Any, Any, Any]:
        prompts, answers, numbers, ids = generate(*arguments, **named)
        said = sampler.said
        if generation.logprobs is None:
            said = [[math.nan] * len(answer) for answer in answers]  # as vLLM says "unknown"
        if said:
            numbers = [[[number] for number in row] for row in said]
        return prompts, answers, numbers, ids

    generation.llm.generate, generation.generate = sampler, generate_lean


class LeanSampler:
    """vLLM's `generate` for TRL, which asks for one answer a prompt."""

    def __init__(self, llm: Any) -> None:
        self.llm, self.generate = llm, llm.generate
        self.keeps = True  # in a ledger
        self.said: list[list[float]] = []  # log-probabilities by the last call, an answer a row; none: in its answers

    def __call__(self, prompts: Any, sampling_params: Any, **named: Any) -> Any:
        """As vLLM's, but with the log-probabilities in `said`."""
        flat = sampling_params.logprobs == 0 and hasattr(sampling_params, "flat_logprobs")  # from vLLM 0.12 on
        if flat:
            sampling_params.flat_logprobs = True
        keeps = flat and self.keeps
        many = in_bursts(self.llm, sampling_params) if keeps or sampling_params.logprobs is None else nullcontext()
        with no_collections(), many, keeping(self.llm) if keeps else nullcontext() as ledger:
            found = self.generate(prompts, sampling_params, **named)
        answers = [one.outputs[0] for one in found]
        self.said = []
        if ledger:
            rows = ledger.read([(one.request_id, list(one.outputs[0].token_ids)) for one in found])
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
def no_collections() -> Iterator[None]:
    """No cycle is looked for inside: each search would walk all that was made since, many times a second."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
