"""vLLM's engine without torch.compile, whose decoding steps are CUDA graphs of vLLM's own kernels.

What Inductor fuses (norms, rotary embeddings, activations) vLLM has as kernels of its own, and CUDA graphs hide their
launches: 64 completions of 512 tokens of a 387 M Qwen2 take 0.76 s, as before on other machines (0.73 to 0.78). From
the imports to the constructed trainer it takes 44 s, TRL's 60 s; with warm caches 12 s and 23 s (one H200, vLLM
0.26.0, 2026-11-26; tests/benchmarks/trainer_gpu.py --caches).
"""

from __future__ import annotations

import functools
from typing import Any

from patches.context import PatchContext

# Dense decoders of vLLM that consist of these kernels
MODEL_TYPES = frozenset({"llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3"})
OPTIONS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}  # CompilationMode.NONE


def apply(context: PatchContext) -> bool:
    """Start engines that are created later without torch.compile; False for a model that needs it."""
    if context.model.config.model_type not in MODEL_TYPES:
        return False
    from vllm import LLM

    construct = LLM.__init__

    @functools.wraps(construct)
    def construct_uncompiled(self: LLM, *arguments: Any, **named: Any) -> None:
        construct(self, *arguments, **{"compilation_config": dict(OPTIONS)} | named)

    LLM.__init__ = construct_uncompiled
    return True
