"""RMSNorm of float32 activations by torch's fused kernel, which reads and writes each number once.

transformers computes it in about six kernels, and its gradient in twice as many. Weights in float32 that are computed
in bfloat16 (autocast) keep the sums of a model's layers, and so the inputs of these norms, in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from patches.context import PatchContext

# transformers' classes with Llama's computation
CLASSES = ("LlamaRMSNorm", "MistralRMSNorm", "Olmo2RMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "SmolLM3RMSNorm")


def apply(context: PatchContext) -> bool:
    """Patch the norms of the trained model; False where it has none."""
    return fuse_norms(context.trainer.model)


def fuse_norms(model: Any) -> bool:
    """Let the norms of a model use torch's kernel."""
    norms = [
        module
        for module in model.modules()
        if type(module).__name__ in CLASSES
        and type(module).forward.__module__.startswith("transformers.models.")  # Liger replaces it, or
        and "forward" not in vars(module)  # that of the instance
    ]
    for norm in norms:
        norm.forward = _fuse(norm)
    return bool(norms)


def _fuse(norm: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    forward = norm.forward

    @functools.wraps(forward)
    def fused_forward(hidden_states: torch.Tensor) -> torch.Tensor:
        if not hidden_states.dtype == norm.weight.dtype == torch.float32:
            return forward(hidden_states)  # transformers rounds before it multiplies by the weight
        return torch.nn.functional.rms_norm(hidden_states, norm.weight.shape, norm.weight, norm.variance_epsilon)

    return fused_forward
