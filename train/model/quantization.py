"""Data types and quantised weights: what can be, what transformers is told, what became of the memory."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from memory.config import quantization_method
from model.errors import first_line
from settings import BadInput

BITSANDBYTES = frozenset({"nf4", "fp4", "int8"})


def choose_dtype(settings: dict[str, Any], stored: str, *, has_bfloat16: bool) -> tuple[str, str, list[str]]:
    """The type to compute in, the type that weights are held in, and notes."""
    wanted, full = settings["dtype"], not settings["lora_rank"]
    if stored == "mxfp4":
        if wanted not in ("auto", "bfloat16"):
            raise BadInput(
                f"dtype = {wanted}, but the checkpoint is MXFP4, which transformers unpacks to bfloat16",
                expected="dtype auto or bfloat16",
                hint="--set dtype=bfloat16",
            )
        return "bfloat16", "bfloat16", []
    if wanted == "auto":
        quantized = settings["quantization"] in BITSANDBYTES or stored == "bitsandbytes"
        # Trained weights are held in float32: bfloat16 would lose small updates. Frozen ones lose nothing.
        wanted = "bfloat16" if quantized or (has_bfloat16 and not full) else "float32"
    if wanted == "float16" and full:
        # GradScaler: "Attempting to unscale FP16 gradients"
        return wanted, "float32", ["dtype: weights are held in float32, since float16 gradients cannot be unscaled."]
    notes = []
    if wanted == "bfloat16" and full and settings["learning_rate"] < 1e-4:
        # A weight of 0.02 in bfloat16 has neighbours 1.2e-4 away; AdamW moves it by about the learning rate.
        notes.append(
            f"dtype: bfloat16 weights lose updates as small as learning_rate {settings['learning_rate']:g} makes "
            "them; --set dtype=float32 keeps them."
        )
    # Float32 weights are computed with in bfloat16 (autocast) where there is a GPU for it, as TRL does by itself.
    return "bfloat16" if has_bfloat16 and wanted == "float32" else wanted, wanted, notes


def quantization_of(config: Any) -> str:
    """The method that the checkpoint is quantised with ("" for none): mxfp4, bitsandbytes, ..."""
    return quantization_method(getattr(config, "quantization_config", None))


def check_quantization(settings: dict[str, Any], stored: str, *, device: str, installed: Collection[str]) -> None:
    """Refuse what cannot be: pure, so that it can be tested without a GPU."""
    wanted = settings["quantization"]
    if stored == "mxfp4" and wanted != "none":
        raise BadInput(
            f"quantization = {wanted}, but {settings['model']} is MXFP4, which bitsandbytes cannot take",
            expected="quantization none (MXFP4 is unpacked to bfloat16), or a bfloat16 copy of the model",
            hint="--set quantization=none",
        )
    by_bitsandbytes = wanted in BITSANDBYTES or stored == "bitsandbytes"
    # transformers finds out when the trainer is made (validate_quantization_for_training); MXFP4 is unpacked.
    if (by_bitsandbytes or stored not in ("", "mxfp4")) and not settings["lora_rank"]:
        what = f"quantization = {wanted}" if wanted != "none" else f"{settings['model']} is quantised"
        raise BadInput(
            f"{what}, and lora_rank = 0 trains every weight",
            expected="an adapter: quantised weights are frozen",
            hint="--set lora_rank=16",
        )
    if stored == "bitsandbytes" and settings["merge"]:  # after.merge_and_compare would say so when all is trained
        raise BadInput(
            f"merge = true, but {settings['model']} itself is quantised",
            expected="a base model in 16 or 32 bits: an adapter merged into 4 bits would be rounded away",
            hint="--set merge=false",
        )
    if by_bitsandbytes and "bitsandbytes" not in installed:
        raise BadInput(
            f"quantization = {wanted if wanted != 'none' else stored}, but bitsandbytes is not installed",
            expected="an environment that holds bitsandbytes",
            hint="--set quantization=none, or choose such a profile: envdoctor profiles",
        )
    if settings["device_map"] and (device == "cpu" or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        where = "on a CPU" if device == "cpu" else "in each of several processes"
        raise BadInput(
            f"device_map = {settings['device_map']} {where}",
            expected="device_map empty, or one process with several GPUs",
            hint="--set device_map=",
        )


def check_bitsandbytes(kind: str, device: str) -> None:
    """Quantise a small matrix: bitsandbytes imports even where its native library failed, and raises when called."""
    import torch

    try:
        from bitsandbytes import functional

        matrix = torch.ones(64, 64, dtype=torch.float16, device=device)
        if kind == "int8":
            functional.int8_vectorwise_quant(matrix)
        else:
            packed, state = functional.quantize_4bit(matrix, quant_type=kind)
            functional.dequantize_4bit(packed, state)
    except Exception as error:
        raise BadInput(
            f"quantization = {kind}: bitsandbytes does not work on {device} here: {first_line(error)}",
            expected="a bitsandbytes whose native library fits this torch and GPU",
            hint="envdoctor verify",
        ) from error


def quantize_options(settings: dict[str, Any], stored: str, compute: str) -> dict[str, Any]:
    """`quantization_config` for from_pretrained, where there is one to give."""
    import torch

    kind = settings["quantization"]
    if stored == "mxfp4":
        from transformers import Mxfp4Config

        return {"quantization_config": Mxfp4Config(dequantize=True)}  # needs neither kernels nor triton
    if kind not in BITSANDBYTES or stored == "bitsandbytes":
        return {}
    from transformers import BitsAndBytesConfig

    if kind == "int8":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=kind,
            bnb_4bit_use_double_quant=settings["double_quantization"],
            bnb_4bit_compute_dtype=getattr(torch, compute),
        )
    }


def describe_quantization(model: Any, settings: dict[str, Any], stored: str) -> list[str]:
    """What quantisation did to the memory, in numbers of the model that is there."""
    gibibytes = model.get_memory_footprint() / 2**30
    if stored == "mxfp4":
        return [f"model: MXFP4 is unpacked to bfloat16 for training, {gibibytes:.3g} GiB, about three times as much."]
    notes = []
    if stored and settings["quantization"] != "none":
        notes.append(f"model: the checkpoint is quantised by {stored} already; quantization counts for nothing.")
    if settings["quantization"] in BITSANDBYTES or stored == "bitsandbytes":
        packed = sum(numel_of(p) for p in model.parameters() if type(p).__name__ in ("Params4bit", "Int8Params"))
        total = count_parameters(model)[1]
        if packed < total / 2:
            notes.append(
                f"model: only {packed:,} of {total:,} parameters are quantised ({gibibytes:.3g} GiB in all): "
                "bitsandbytes takes linear layers, not embeddings and not experts that are plain parameters."
            )
    return notes


def count_parameters(model: Any) -> tuple[int, int]:
    """(trainable, all); a 4-bit weight counts as what it stands for, not as the bytes that it is packed in."""
    parameters = list(model.parameters())
    trainable = sum(numel_of(parameter) for parameter in parameters if parameter.requires_grad)
    return trainable, sum(numel_of(parameter) for parameter in parameters)


def numel_of(parameter: Any) -> int:
    """Elements of a parameter, two to the byte of a packed one."""
    if type(parameter).__name__ != "Params4bit" or getattr(parameter, "quant_state", None) is None:
        return parameter.numel()
    count = 1
    for size in parameter.quant_state.shape:
        count *= size
    return count
