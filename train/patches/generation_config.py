"""Sampling by the run's settings alone, without the defaults of a checkpoint's generation_config.json."""

from __future__ import annotations

import functools
from typing import Any

from patches.context import PatchContext

TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def apply(context: PatchContext) -> None:
    """Hide the checkpoint's generation defaults, except the special tokens, from `model.generate`.

    transformers 5 fills fields that the given configuration leaves out (Qwen2.5's repetition_penalty of 1.1);
    transformers 4.50 and later replace fields that equal a default (temperature 1.0 by Qwen3's 0.6). The sampling
    policy would differ from the trained one. The saved model keeps its configuration.
    """
    from transformers import GenerationConfig

    model = context.model
    generate = model.generate

    @functools.wraps(generate)
    def generate_by_settings(*arguments: Any, **named: Any) -> Any:
        checkpoint_config = model.generation_config
        model.generation_config = GenerationConfig(**{name: getattr(checkpoint_config, name) for name in TOKENS})
        try:
            return generate(*arguments, **named)
        finally:
            model.generation_config = checkpoint_config

    model.generate = generate_by_settings
