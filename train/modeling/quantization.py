"""Quantized weights: the check of bitsandbytes, the options of transformers, and the memory in use."""

from __future__ import annotations

from typing import Any

from checks.dtypes import BITSANDBYTES, quantization_method
from checks.engines import quantization_setting, quantization_type
from modeling.load_errors import first_line
from settings import BadInput


def quantization_of(config: Any) -> str:
    """The quantization method of the checkpoint ("" for none): mxfp4, bitsandbytes, ..."""
    return quantization_method(getattr(config, "quantization_config", None))


def check_bitsandbytes(kind: str, device: str) -> None:
    """Quantize a small matrix: bitsandbytes imports without its native library, and raises when it is called."""
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
            f"{quantization_setting(kind)}: bitsandbytes does not work on {device} here: {first_line(error)}",
            expected="a bitsandbytes whose native library fits this torch and GPU",
            hint="envdoctor verify",
        ) from error


def quantize_options(settings: dict[str, Any], stored: str, compute: str) -> dict[str, Any]:
    """`quantization_config` for from_pretrained; empty without quantization."""
    import torch

    kind = quantization_type(settings)
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
            bnb_4bit_use_double_quant=settings["bnb_4bit_use_double_quant"],
            bnb_4bit_compute_dtype=getattr(torch, compute),
        )
    }


def describe_quantization(model: Any, settings: dict[str, Any], stored: str) -> list[str]:
    """Notes on the memory of the quantized model."""
    gibibytes = model.get_memory_footprint() / 2**30
    if stored == "mxfp4":
        return [
            f"model: MXFP4 is unpacked to bfloat16 for training: {gibibytes:.3g} GiB, about three times the size."
        ]
    notes = []
    if stored and quantization_type(settings) != "none":
        notes.append(
            f"model: the checkpoint is quantized by {stored} already; the setting quantization has no effect."
        )
    if quantization_type(settings) in BITSANDBYTES or stored == "bitsandbytes":
        packed = sum(numel_of(p) for p in model.parameters() if type(p).__name__ in ("Params4bit", "Int8Params"))
        total = count_parameters(model)[1]
        if packed < total / 2:
            notes.append(
                f"model: only {packed:,} of {total:,} parameters are quantized ({gibibytes:.3g} GiB in total): "
                "bitsandbytes quantizes linear layers, but not embeddings, and not experts that are plain parameters."
            )
    return notes


def count_parameters(model: Any) -> tuple[int, int]:
    """(trainable, all) parameters; a packed 4-bit weight counts as its original elements."""
    parameters = list(model.parameters())
    trainable = sum(numel_of(parameter) for parameter in parameters if parameter.requires_grad)
    return trainable, sum(numel_of(parameter) for parameter in parameters)


def numel_of(parameter: Any) -> int:
    """Elements of a parameter, before packing."""
    if type(parameter).__name__ != "Params4bit" or getattr(parameter, "quant_state", None) is None:
        return parameter.numel()
    count = 1
    for size in parameter.quant_state.shape:
        count *= size
    return count
