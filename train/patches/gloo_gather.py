"""TRL gathers Python objects, the texts among them, four times per step; here over the gloo group of the ranks."""

from __future__ import annotations

import sys

from patches.context import PatchContext


def apply(context: PatchContext) -> None:
    """Replace `gather_object` in TRL's trainer module."""
    module = sys.modules["trl.trainer.grpo_trainer"]
    module.gather_object = context.ranks.gather  # type: ignore[attr-defined]
