"""Liger's fused kernels in the layers of a loaded model: norms, rotary positions, the feed-forward part."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

from settings import BadInput

REFUSED = "--set liger_kernels=false"


def put_liger_kernels(model: Any, *, device: str) -> None:
    """Exchange the layers' functions in place; the loss stays TRL's."""
    if device != "cuda":
        raise BadInput("liger_kernels = true without a GPU", expected="a GPU: they are Triton's", hint=REFUSED)
    if importlib.util.find_spec("liger_kernel") is None:
        raise BadInput(
            "liger_kernels = true, but liger-kernel is not installed",
            expected="liger-kernel in the environment",
            hint=REFUSED,
        )
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    kind = model.config.model_type
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise BadInput(
            f"liger_kernels = true, but this liger-kernel knows nothing of {kind}",
            expected=f"one of {', '.join(sorted(MODEL_TYPE_TO_APPLY_LIGER_FN))}",
            hint=REFUSED,
        )
    put = MODEL_TYPE_TO_APPLY_LIGER_FN[kind]
    # Its fused cross-entropy would replace the model's forward, which hands logits or log-probabilities to TRL.
    off = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    put(model=model, **{name: value for name, value in off.items() if name in inspect.signature(put).parameters})
