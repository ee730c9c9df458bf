"""Gradient checkpointing that stays non-reentrant."""

from __future__ import annotations

import functools
from typing import Any

from patches.context import PatchContext


def apply(context: PatchContext) -> None:
    """Default to `use_reentrant=False` where the caller gives no arguments.

    TRL up to 0.23 enables checkpointing again after each generation, with the reentrant default of transformers 4.
    """
    enable = context.model.gradient_checkpointing_enable

    @functools.wraps(enable)
    def enable_non_reentrant(gradient_checkpointing_kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        enable(gradient_checkpointing_kwargs or {"use_reentrant": False}, **options)

    context.model.gradient_checkpointing_enable = enable_non_reentrant
