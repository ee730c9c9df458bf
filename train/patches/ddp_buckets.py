"""Gradients as views of DDP's communication buckets."""

from __future__ import annotations

from patches.context import PatchContext


def apply(context: PatchContext) -> bool:
    """Set DDP's `gradient_as_bucket_view`: without it DDP holds the gradients twice and copies them back."""
    handler = getattr(context.trainer.accelerator, "ddp_handler", None)
    if handler is None:
        return False
    handler.gradient_as_bucket_view = True
    return True
