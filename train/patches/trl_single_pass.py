"""GRPO with vLLM's importance-sampling correction, without TRL's separate scoring pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.sampling_stats: list[SamplingStats] = []  # of each micro-batch since the last log
        super().__init__(*arguments, **named)

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
            weights, stats = importance_weights(found[0].detach(), self.training_inputs, self)
            self.training_inputs["importance_sampling_ratio"] = weights
            self.sampling_stats.append(stats)
        return found

    def log(self, logs: dict[str, float], *arguments: Any, **named: Any) -> None:
        """Add TRL's metrics of the sampling, which TRL computes in its scoring pass."""
        if self.sampling_stats:
            for name, value in SamplingStats.join(self.sampling_stats).reduce(self.accelerator.gather).items():
                self._metrics["train"][f"sampling/{name}"].append(value)
            self.sampling_stats = []
        super().log(logs, *arguments, **named)


@dataclass(frozen=True)
class SamplingStats:
    """The distance of vLLM's log-probabilities from the model's, and the importance weights; scalars on the GPU."""

    differences: torch.Tensor  # (count, sum, maximum) of |log ratio| per token that vLLM scored
    weights: torch.Tensor  # (count, sum, maximum, minimum) per token or sequence

    @classmethod
    def measure(
        cls, differences: torch.Tensor, scored: torch.Tensor, weights: torch.Tensor, counted: torch.Tensor
    ) -> SamplingStats:
        """The numbers of one micro-batch, at the positions of the masks; without a wait for the GPU."""
        differences, used = differences.masked_fill(~scored, 0.0), weights.masked_fill(~counted, 0.0)
        return cls(
            torch.stack([scored.sum(), differences.sum(), differences.max()]),
            torch.stack([counted.sum(), used.sum(), used.max(), weights.masked_fill(~counted, math.inf).min()]),
        )

    @classmethod
    def join(cls, parts: Sequence[SamplingStats]) -> SamplingStats:
        """The numbers of all micro-batches of a step."""
        differences, weights = (
            torch.stack(rows) for rows in zip(*((p.differences, p.weights) for p in parts), strict=True)
        )
        return cls(
            torch.cat([differences[:, :2].sum(0), differences[:, 2:].amax(0)]),
            torch.cat([weights[:, :2].sum(0), weights[:, 2:3].amax(0), weights[:, 3:].amin(0)]),
        )

    def reduce(self, gather: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """TRL's metrics, over all ranks: means are means of the ranks' own."""
        differences, weights = gather(self.differences[None]), gather(self.weights[None])
        means = [rows[:, 1] / rows[:, 0].clamp(min=1) for rows in (differences, weights)]
        minimum = weights[:, 3].masked_fill(weights[:, 0] == 0, 0.0)  # TRL's value where there is none
        found = {
            "sampling_logp_difference/mean": means[0].mean(),
            "sampling_logp_difference/max": differences[:, 2].max(),
            "importance_sampling_ratio/min": minimum.min(),
            "importance_sampling_ratio/mean": means[1].mean(),
            "importance_sampling_ratio/max": weights[:, 2].max(),
        }
        return dict(zip(found, torch.stack([*found.values()]).tolist(), strict=True))


def pad_logprobs(ids: torch.Tensor, logprobs: Sequence[Sequence[float]]) -> torch.Tensor:
    """Log-probabilities as a tensor of the shape of `ids` (B, T); 0 in the padding on the right."""
    padded = np.zeros(ids.shape, np.float32)
    for row, numbers in zip(padded, logprobs, strict=True):
        row[: len(numbers)] = numbers
    return torch.from_numpy(padded).to(ids.device)


def importance_weights(
    model_logprobs: torch.Tensor, inputs: Mapping[str, Any], trainer: Any
) -> tuple[torch.Tensor, SamplingStats]:
    """(weights per token (B, T) or per sequence (B, 1), numbers for the metrics), by TRL's modes and limits.

    `model_logprobs` is (B, T). A token without a log-probability from vLLM (NaN) has weight 1, and no difference.
    Modes: "token_truncate", "token_mask", "sequence_truncate", "sequence_mask".
    """
    mask = inputs["completion_mask"]
    per_token = (model_logprobs - inputs["sampling_per_token_logps"]) * mask
    scored = mask.bool() & ~torch.isnan(per_token)
    difference = torch.nan_to_num(per_token, nan=0.0)
    mode = trainer.vllm_importance_sampling_mode
    by_sequence = mode.startswith("sequence")
    ratio = torch.exp(difference.sum(-1, keepdim=True) if by_sequence else difference)
    low, high = trainer.vllm_importance_sampling_clip_min, trainer.vllm_importance_sampling_clip_max
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if mode.endswith("truncate"):
        weights = ratio.clamp(low, high)
    else:
        weights = ratio.masked_fill((ratio < low) | (ratio > high), 0.0)
    counted = torch.ones_like(weights, dtype=torch.bool) if by_sequence else mask.bool()
    return weights, SamplingStats.measure(difference.abs(), scored, weights, counted)
