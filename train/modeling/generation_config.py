"""Answers are sampled by the settings alone, not by what a checkpoint's generation_config.json adds to them."""

from __future__ import annotations

import functools
from typing import Any

TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def ignore_checkpoint_sampling_defaults(model: Any) -> None:
    """Let `model.generate` see no defaults of the checkpoint's but its special tokens; what is saved keeps them all.

    transformers mixes them into the configuration that it is given: 5 into what that leaves out (Qwen2.5's
    repetition_penalty of 1.1), 4.50 and newer into all that equals a default (Qwen3's temperature of 0.6 for 1.0,
    its do_sample for a greedy look). The policy that answers would not be the one that is trained.
    """
    from transformers import GenerationConfig

    generate = model.generate

    @functools.wraps(generate)
    def generate_as_asked(*arguments: Any, **named: Any) -> Any:
        said = model.generation_config
        model.generation_config = GenerationConfig(**{name: getattr(said, name) for name in TOKENS})
        try:
            return generate(*arguments, **named)
        finally:
            model.generation_config = said

    model.generate = generate_as_asked
