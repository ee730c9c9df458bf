"""Training passes without an attention mask: rows start at the first position, cut to the longest row.

TRL pads prompts on the left and completions on the right, and masks the padding. With a mask, torch's
scaled_dot_product_attention cannot use FlashAttention's kernels: 122 ms of attention per step instead of 33, with 64
rows of 768 tokens of a 387 M Qwen2 (H200, torch 2.11.0, 2026-11-22). In a causal model no token attends to a later
one, so padding on the right needs no mask.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from patches.context import PatchContext

# A forward pass with one of these is left alone: it continues a sequence, or its output depends on every position.
UNSUPPORTED_ARGUMENTS = (
    "position_ids", "past_key_values", "inputs_embeds", "use_cache", "output_hidden_states", "output_attentions",
    "output_router_logits",
)  # fmt: skip


def apply(context: PatchContext) -> bool:
    """Patch the model of the trainer and, where it has one, the reference model."""
    return remove_padding(context.trainer, device=context.device, compiled=context.settings["torch_compile"])


def remove_padding(trainer: Any, *, device: str, compiled: bool) -> bool:
    """Patch the trained model and the reference model alike; whether the trained one is patched."""
    reference = getattr(trainer, "ref_model", None)
    if reference is not None:
        remove_model_padding(reference, device=device, compiled=compiled)
    return remove_model_padding(trainer.model, device=device, compiled=compiled)


def remove_model_padding(model: Any, *, device: str, compiled: bool = False) -> bool:
    """Let the model's decoder compute unpadded rows; False where this model or device does not support it.

    A CPU has no faster attention without a mask, and a compiled model needs rows of one length.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    decoder = base.base_model
    if device != "cuda" or compiled or decoder is base or not is_supported(base.config, decoder):
        return False
    forward = decoder.forward

    @functools.wraps(forward)
    def unpadded_forward(*arguments: Any, **named: Any) -> Any:
        rows = None if arguments else _Rows.from_arguments(named)
        if rows is None:
            return forward(*arguments, **named)
        ids = rows.align_left(named["input_ids"])
        # transformers detects a mask of ones; without any mask 4.57 would build one for packed sequences.
        output = forward(**{**named, "input_ids": ids, "attention_mask": torch.ones_like(ids)})
        output.last_hidden_state = rows.restore(output.last_hidden_state)
        return output

    decoder.forward = unpadded_forward
    return True


def has_only_rows(named: Mapping[str, Any]) -> bool:
    """Whether a forward pass only has rows and their mask: it is a training or scoring pass of a text model."""
    ids, mask = named.get("input_ids"), named.get("attention_mask")
    unsupported = [name for name in UNSUPPORTED_ARGUMENTS if named.get(name) is not None and named[name] is not False]
    tensors = [value for value in named.values() if isinstance(value, torch.Tensor)]
    return ids is not None and mask is not None and ids.shape == mask.shape and len(tensors) == 2 and not unsupported


def is_supported(config: Any, decoder: Any) -> bool:
    """Whether this is a causal decoder of transformers whose attention a mask slows down."""
    return (
        config._attn_implementation == "sdpa"  # noqa: SLF001  no public attribute has it
        and type(decoder).__module__.startswith("transformers.models.")
        and not config.is_encoder_decoder
        and config.return_dict
        and not hasattr(config, "vision_config")  # image tokens may attend to later ones
        and not getattr(config, "use_bidirectional_attention", False)
        and not getattr(config, "output_router_logits", False)  # compared with the mask, position by position
    )


class _Rows:
    """Positions of the tokens in padded rows: `left` (B, 1) is the padding before them, `longest` their maximum."""

    def __init__(self, left: torch.Tensor, longest: int, width: int) -> None:
        self.longest = longest
        self.positions = torch.arange(width, device=left.device)
        self.left = left

    @classmethod
    def from_arguments(cls, named: Mapping[str, Any]) -> _Rows | None:
        """The rows of a training or scoring pass; None for any other pass, and with padding within a row."""
        if not has_only_rows(named):
            return None
        ids, mask = named["input_ids"], named["attention_mask"]
        real = mask.bool()
        segments = (real[:, 1:] & ~real[:, :-1]).sum(1) + real[:, 0]
        left = (real.cumsum(1) == 0).sum(1)
        most_segments, longest = torch.stack([segments.max(), real.sum(1).max()]).tolist()
        return cls(left[:, None], longest, ids.shape[1]) if most_segments == 1 else None

    def align_left(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, width) with padding on both sides -> (B, longest) with padding on the right."""
        return ids.gather(1, (self.positions[: self.longest] + self.left) % len(self.positions))

    def restore(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, longest, H) -> (B, width, H) with each token at its own position; the padding has arbitrary values."""
        index = (self.positions - self.left).clamp(0, self.longest - 1)
        first = torch.arange(len(hidden), device=hidden.device)[:, None] * self.longest
        return hidden.flatten(0, 1).index_select(0, (first + index).flatten()).unflatten(0, index.shape)
