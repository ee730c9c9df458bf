"""Data types and quantized checkpoints: the types of a training, and combinations that do not work. Pure."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from checks.engines import quantization_setting, quantization_type
from settings import BadInput

BITSANDBYTES = frozenset({"nf4", "fp4", "int8"})


def gpu_dtype(capability: tuple[int, int]) -> str:
    """The 16-bit type that a GPU computes: GPUs before Ampere have tensor cores for float16 only.

    torch.cuda.is_bf16_supported() is true for them as well, because torch emulates bfloat16 there.
    """
    return "bfloat16" if capability >= (8, 0) else "float16"


def choose_dtype(settings: dict[str, Any], stored: str, *, fast_dtype: str) -> tuple[str, str, list[str]]:
    """(compute type, type of the weights, notes). `fast_dtype`: of gpu_dtype, empty on a CPU."""
    requested, full = settings["dtype"], not settings["r"]
    if stored == "mxfp4":
        if requested not in ("auto", "bfloat16"):
            raise BadInput(
                f"dtype = {requested}, but the checkpoint is MXFP4, which transformers unpacks to bfloat16",
                expected="dtype auto or bfloat16",
                hint="--set dtype=bfloat16",
            )
        return "bfloat16", "bfloat16", []
    if requested == "auto":
        quantized = quantization_type(settings) in BITSANDBYTES or stored == "bitsandbytes"
        # Trained weights are in float32: bfloat16 would lose small updates. Frozen weights lose nothing.
        requested = (fast_dtype or "bfloat16") if quantized or (fast_dtype and not full) else "float32"
    if requested == "float16" and full:
        # GradScaler: "Attempting to unscale FP16 gradients"
        return (
            requested,
            "float32",
            ["dtype: the weights are in float32, since float16 gradients cannot be unscaled."],
        )
    notes = []
    if requested == "bfloat16" and full and settings["learning_rate"] < 1e-4:
        # A weight of 0.02 in bfloat16 has neighbours 1.2e-4 away; AdamW moves it by about the learning rate.
        notes.append(
            f"dtype: bfloat16 weights lose the small updates of learning_rate {settings['learning_rate']:g}; "
            "--set dtype=float32 keeps them."
        )
    # Float32 weights are computed with in bfloat16 (autocast) on a GPU that supports it, as TRL does by default.
    autocast = fast_dtype == "bfloat16" and requested == "float32"
    return fast_dtype if autocast else requested, requested, notes


def check_quantization(settings: dict[str, Any], stored: str, *, device: str, installed: Collection[str]) -> None:
    """Refuse combinations of quantization, checkpoint, device and packages that do not work."""
    wanted = quantization_type(settings)
    setting = quantization_setting(wanted)
    off = f"--set {setting.partition(' ')[0]}=false"
    if stored == "mxfp4" and wanted != "none":
        raise BadInput(
            f"{setting}, but {settings['model']} is MXFP4, which bitsandbytes does not support",
            expected="no quantization (MXFP4 is unpacked to bfloat16), or a bfloat16 copy of the model",
            hint=off,
        )
    model_is_quantized = f"{settings['model']} is quantized"
    by_bitsandbytes = wanted in BITSANDBYTES or stored == "bitsandbytes"
    # transformers refuses it when the trainer is constructed (validate_quantization_for_training).
    if (by_bitsandbytes or stored not in ("", "mxfp4")) and not settings["r"]:
        what = setting if wanted != "none" else model_is_quantized
        raise BadInput(
            f"{what}, and r = 0 trains every weight",
            expected="an adapter: quantized weights are frozen",
            hint="--set r=16",
        )
    if stored == "bitsandbytes" and settings["merge"]:
        raise BadInput(
            f"merge = true, but {settings['model']} itself is quantized",
            expected="a base model in 16 or 32 bits: an adapter merged into 4 bits would be rounded away",
            hint="--set merge=false",
        )
    if by_bitsandbytes and "bitsandbytes" not in installed:
        raise BadInput(
            f"{setting if wanted != 'none' else model_is_quantized}, but bitsandbytes is not installed",
            expected="an environment with bitsandbytes",
            hint=f"{off}, or choose such a profile: envdoctor profiles",
        )
    if settings["device_map"] and (device == "cpu" or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        where = "on a CPU" if device == "cpu" else "in each of several processes"
        raise BadInput(
            f"device_map = {settings['device_map']} {where}",
            expected="device_map empty, or one process with several GPUs",
            hint="--set device_map=",
        )


def as_dict(config: Any) -> dict[str, Any]:
    """A `quantization_config` as a dict; a loaded model has an object."""
    return config if isinstance(config, dict) else dict(getattr(config, "__dict__", {}))


def quantization_method(config: Any) -> str:
    """The method of a `quantization_config`; empty for none.

    Older checkpoints of bitsandbytes name no method: transformers detects them by load_in_4bit and load_in_8bit
    (quantizers/auto.py of 4.56.2 and 5.17.0).
    """
    values = as_dict(config)
    method = values.get("quant_method")
    if not method and (values.get("load_in_4bit") or values.get("load_in_8bit")):
        return "bitsandbytes"
    return str(getattr(method, "value", method) or "")
