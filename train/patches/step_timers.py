"""Times the parts of a step: generation, scoring, and the weight sync to vLLM."""

from __future__ import annotations

import torch
from patches.context import PatchContext


def apply(context: PatchContext) -> None:
    """Wrap the methods that TRL calls, the same ones from 0.22.2 to 1.16."""
    trainer, timer = context.trainer, context.timer
    timer.wrap(trainer.model, "generate", "generate")
    timer.wrap(trainer, "_calculate_rewards", "score")
    # Log-probabilities before the update: of the reference model, and of the policy where TRL needs them.
    timer.wrap(trainer, "_get_per_token_logps_and_entropies", "score", unless=torch.is_grad_enabled)
    colocated = getattr(trainer, "vllm_generation", None)  # from TRL 0.28
    if colocated is not None:
        timer.wrap(colocated, "sync_weights", "sync")
        timer.wrap(colocated, "generate", "generate")
        return
    timer.wrap(trainer, "_move_model_to_vllm", "sync")
    for name in ("llm", "vllm_client"):
        if hasattr(trainer, name):
            timer.wrap(getattr(trainer, name), "generate", "generate")
