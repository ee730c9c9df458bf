"""Learning without a mask: each row begins at the first place, and is as long as the longest of them has to be.

TRL pads prompts on the left and answers on the right, and says so by a mask. With one torch's
scaled_dot_product_attention cannot take FlashAttention's kernels, and one answer that ends before the others is
enough: 122 ms of attention a step for 33, 64 rows of 768 tokens of a Qwen2 of 387 M parameters (an H200, driver
580.159.04, torch 2.11.0, 2026-11-22). A causal model never looks at what comes after a token, so padding on the right
needs no mask.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

# What a forward pass is left alone with: it continues a text, or its answer names every place.
OTHERWISE = (
    "position_ids", "past_key_values", "inputs_embeds", "use_cache", "output_hidden_states", "output_attentions",
    "output_router_logits",
)  # fmt: skip


def remove_padding(trainer: Any, *, device: str, compiled: bool) -> None:
    """The trainer's model and, where it has one, the reference: what is compared is computed alike."""
    for model in (trainer.model, getattr(trainer, "ref_model", None)):
        if model is not None:
            remove_model_padding(model, device=device, compiled=compiled)


def remove_model_padding(model: Any, *, device: str, compiled: bool = False) -> bool:
    """Let the model's decoder compute its rows without their padding; whether this one can.

    A CPU has no faster attention without a mask, and a compiled model wants rows of one length.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    decoder = base.base_model
    if device != "cuda" or compiled or decoder is base or not _fits(base.config, decoder):
        return False
    forward = decoder.forward

    @functools.wraps(forward)
    def unpadded(*arguments: Any, **named: Any) -> Any:
        rows = None if arguments else _Rows.of(named)
        if rows is None:
            return forward(*arguments, **named)
        ids = rows.pushed(named["input_ids"])
        # That nothing is masked is seen by transformers; of no mask 4.57 makes one, for several texts in a row.
        found = forward(**{**named, "input_ids": ids, "attention_mask": torch.ones_like(ids)})
        found.last_hidden_state = rows.put_back(found.last_hidden_state)
        return found

    decoder.forward = unpadded
    return True


def _fits(config: Any, decoder: Any) -> bool:
    """A causal decoder of transformers' own, with the attention that a mask slows down."""
    return (
        config._attn_implementation == "sdpa"  # noqa: SLF001  no public name tells
        and type(decoder).__module__.startswith("transformers.models.")
        and not config.is_encoder_decoder
        and config.return_dict
        and not hasattr(config, "vision_config")  # images may look ahead
        and not getattr(config, "use_bidirectional_attention", False)
        and not getattr(config, "output_router_logits", False)  # compared with the mask, place by place
    )


class _Rows:
    """Where the tokens of padded rows are: `left` (B, 1) before the first of each, `longest` of them in a row."""

    def __init__(self, left: torch.Tensor, longest: int, width: int) -> None:
        self.longest = longest
        self.places = torch.arange(width, device=left.device)
        self.left = left

    @classmethod
    def of(cls, named: Mapping[str, Any]) -> _Rows | None:
        """The rows of a pass that learns or scores; None for any other, and where padding lies within a row."""
        ids, mask = named.get("input_ids"), named.get("attention_mask")
        asks = [name for name in OTHERWISE if named.get(name) is not None and named[name] is not False]
        tensors = [value for value in named.values() if isinstance(value, torch.Tensor)]
        if ids is None or mask is None or ids.shape != mask.shape or len(tensors) != 2 or asks:
            return None
        real = mask.bool()
        begins = (real[:, 1:] & ~real[:, :-1]).sum(1) + real[:, 0]
        left = (real.cumsum(1) == 0).sum(1)
        most, longest = torch.stack([begins.max(), real.sum(1).max()]).tolist()
        return cls(left[:, None], longest, ids.shape[1]) if most == 1 else None

    def pushed(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, width) with padding on both sides -> (B, longest) with padding on the right alone."""
        return ids.gather(1, (self.places[: self.longest] + self.left) % len(self.places))

    def put_back(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, longest, H) -> (B, width, H): each token's where it was; padding gets some token's."""
        place = (self.places - self.left).clamp(0, self.longest - 1)
        first = torch.arange(len(hidden), device=hidden.device)[:, None] * self.longest
        return hidden.flatten(0, 1).index_select(0, (first + place).flatten()).unflatten(0, place.shape)
