"""Liger's fused kernels in the layers of a loaded model: norms, rotary embeddings, MLP."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

from settings import BadInput


def apply_liger_kernels(model: Any, settings: dict[str, Any], *, device: str) -> list[str]:
    """Replace the layers' functions in place, but not TRL's loss; returns notes. Resolves "auto" to "on" or "off"."""
    wanted = settings["liger_kernels"]
    if wanted == "off":
        return []
    obstacle, expected = find_obstacle(model, device)
    if settings["fsdp"]:
        obstacle = obstacle or "they are untested with sharded weights"  # "on" is refused earlier
    if obstacle and wanted == "on":
        raise _refusal(obstacle, expected)
    settings["liger_kernels"] = "off" if obstacle else "on"
    if obstacle:
        return [f"liger_kernels: off, since {obstacle}."]
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    apply_kernels = MODEL_TYPE_TO_APPLY_LIGER_FN[model.config.model_type]
    # The fused cross-entropy would replace the model's forward pass, whose logits TRL needs.
    off = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    apply_kernels(
        model=model,
        **{name: value for name, value in off.items() if name in inspect.signature(apply_kernels).parameters},
    )
    return []


def check_liger_kernels(settings: dict[str, Any], device: str) -> None:
    """Refuse liger_kernels = on where no model can have them."""
    if settings["liger_kernels"] == "on" and any(found := _missing(device)):
        raise _refusal(*found)


def _refusal(obstacle: str, expected: str) -> BadInput:
    return BadInput(f"liger_kernels = on, but {obstacle}", expected=expected, hint="--set liger_kernels=auto, or off")


def _missing(device: str) -> tuple[str, str]:
    """(what is missing for Liger's kernels of any model, what they need); empty if nothing is."""
    if device != "cuda":
        return "there is no GPU", "a GPU: the kernels are in Triton"
    if importlib.util.find_spec("liger_kernel") is None:
        return "liger-kernel is not installed", "liger-kernel in the environment"
    return "", ""


def find_obstacle(model: Any, device: str) -> tuple[str, str]:
    """(the obstacle to Liger's kernels, what they need); empty without one."""
    if any(found := _missing(device)):
        return found
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    kind = model.config.model_type
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        return f"this liger-kernel does not support {kind}", ", ".join(sorted(MODEL_TYPE_TO_APPLY_LIGER_FN))
    return "", ""
