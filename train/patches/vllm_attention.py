"""Triton's attention in vLLM, for GPUs before Ampere."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from patches.context import PatchContext


def apply(_context: PatchContext) -> bool:
    """Select Triton's attention for engines created later; False if vLLM lacks the option.

    vLLM has FlashAttention from compute capability 8.0 on. For 7.5 most releases select FlashInfer, which compiles
    its kernels with nvcc at first use.
    """
    from vllm import LLM, EngineArgs

    if "attention_backend" not in {field.name for field in dataclasses.fields(EngineArgs)}:
        return False
    construct = LLM.__init__

    @functools.wraps(construct)
    def construct_with_backend(self: LLM, *arguments: Any, **named: Any) -> None:
        construct(self, *arguments, **{"attention_backend": "TRITON_ATTN"} | named)

    LLM.__init__ = construct_with_backend
    return True
