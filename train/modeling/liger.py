"""Liger's fused kernels in the layers of a loaded model: norms, rotary positions, the feed-forward part."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

from settings import BadInput


def apply_liger_kernels(model: Any, settings: dict[str, Any], *, device: str) -> list[str]:
    """Exchange the layers' functions in place, the loss stays TRL's; notes. "auto" is settled to "on" or "off"."""
    wanted = settings["liger_kernels"]
    if wanted == "off":
        return []
    why_not, expected = find_obstacle(model, device)
    if settings["sharding"] != "none":
        why_not = why_not or "they were not tried on divided weights"  # "on" is refused with it before
    if why_not and wanted == "on":
        raise BadInput(
            f"liger_kernels = on, but {why_not}", expected=expected, hint="--set liger_kernels=auto, or off"
        )
    settings["liger_kernels"] = "off" if why_not else "on"
    if why_not:
        return [f"liger_kernels: off, since {why_not}."]
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    put = MODEL_TYPE_TO_APPLY_LIGER_FN[model.config.model_type]
    # Its fused cross-entropy would replace the model's forward, which hands logits or log-probabilities to TRL.
    off = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    put(model=model, **{name: value for name, value in off.items() if name in inspect.signature(put).parameters})
    return []


def find_obstacle(model: Any, device: str) -> tuple[str, str]:
    """(why Liger cannot serve this model, what it needs); empty where it can."""
    if device != "cuda":
        return "there is no GPU", "a GPU: the kernels are Triton's"
    if importlib.util.find_spec("liger_kernel") is None:
        return "liger-kernel is not installed", "liger-kernel in the environment"
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    kind = model.config.model_type
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        return f"this liger-kernel knows nothing of {kind}", ", ".join(sorted(MODEL_TYPE_TO_APPLY_LIGER_FN))
    return "", ""
