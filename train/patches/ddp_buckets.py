"""Gradients as views of DDP's communication buckets."""

from __future__ import annotations

from patches.context import PatchContext

BUCKET_MB = 100  # DDP's 25 would start 62 reductions for 387 M parameters


def apply(context: PatchContext) -> bool:
    """Set DDP's `gradient_as_bucket_view`: without it DDP holds the gradients twice and copies them back."""
    handler = getattr(context.trainer.accelerator, "ddp_handler", None)
    if handler is None:
        return False
    handler.gradient_as_bucket_view = True
    if context.trainer.args.ddp_bucket_cap_mb is None:
        handler.bucket_cap_mb = BUCKET_MB
    if context.trainer.args.ddp_broadcast_buffers is None:  # constants of the rotary embedding
        handler.broadcast_buffers = False
    return True
