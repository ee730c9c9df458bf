"""GRPO with vLLM's importance-sampling correction, without TRL's separate scoring pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from patches.context import PatchContext
from trl import GRPOTrainer


def apply(context: PatchContext) -> None:
    """Train with SinglePassTrainer."""
    context.trainer_class = SinglePassTrainer


class SinglePassTrainer(GRPOTrainer):
    """TRL's trainer, with importance weights from the log-probabilities of the training pass.

    TRL weights what vLLM sampled by the ratio of the model's probability to vLLM's, and runs the model once over all
    completions to compute it. Where each completion is used for one update, the training pass computes the same
    log-probabilities.
    """

    training_inputs: dict[str, Any] | None = None  # set while the loss is computed
    # vLLM's log-probabilities, a row per completion; empty where TRL has them itself
    sampled_logprobs: Sequence[Sequence[float]] = ()

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        correction, self.vllm_importance_sampling_correction = self.vllm_importance_sampling_correction, False
        try:
            found = super()._generate_and_score_completions(inputs)
        finally:
            self.vllm_importance_sampling_correction = correction
        if self.sampled_logprobs:
            found["sampling_per_token_logps"] = pad_logprobs(found["completion_ids"], self.sampled_logprobs)
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.training_inputs = inputs
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.training_inputs = None

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*arguments, **named)
        if self.training_inputs is not None:
            weights, difference = importance_weights(found[0].detach(), self.training_inputs, self)
            self.training_inputs["importance_sampling_ratio"] = weights
            mean = self.accelerator.gather(difference).mean().item()
            self._metrics["train"]["sampling/sampling_logp_difference/mean"].append(mean)
        return found


def pad_logprobs(ids: torch.Tensor, logprobs: Sequence[Sequence[float]]) -> torch.Tensor:
    """Log-probabilities as a tensor of the shape of `ids` (B, T); 0 in the padding on the right."""
    padded = np.zeros(ids.shape, np.float32)
    for row, numbers in zip(padded, logprobs, strict=True):
        row[: len(numbers)] = numbers
    return torch.from_numpy(padded).to(ids.device)


def importance_weights(
    model_logprobs: torch.Tensor, inputs: Mapping[str, Any], trainer: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights per token (B, T) or per sequence (B, 1), mean |log ratio|), by TRL's modes and limits.

    `model_logprobs` is (B, T). A token without a log-probability from vLLM (NaN) has weight 1.
    Modes: "token_truncate", "token_mask", "sequence_truncate", "sequence_mask".
    """
    mask = inputs["completion_mask"]
    difference = torch.nan_to_num((model_logprobs - inputs["sampling_per_token_logps"]) * mask, nan=0.0)
    mode = trainer.vllm_importance_sampling_mode
    ratio = torch.exp(difference.sum(-1, keepdim=True) if mode.startswith("sequence") else difference)
    low, high = trainer.vllm_importance_sampling_clip_min, trainer.vllm_importance_sampling_clip_max
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if mode.endswith("truncate"):
        weights = ratio.clamp(low, high)
    else:
        weights = ratio.masked_fill((ratio < low) | (ratio > high), 0.0)
    return weights, difference.abs().sum() / mask.sum().clamp(min=1)
