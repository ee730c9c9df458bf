"""What generation = transformers-graphs goes with, known before a model is loaded; the standard library alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from settings import BadInput

SINKS = ("gpt_oss",)  # model types whose attention has a learnt sink, as checks.attention knows them


def check_cuda_graphs(
    settings: Mapping[str, Any], model_type: str = "", layer_types: Collection[str] = (), experts: int = 0
) -> None:
    """Refuse settings, or a model of this type with such layers, that recorded steps were not shown for."""
    if settings["generation"] != "transformers-graphs":
        return
    other = sorted(set(layer_types) - {"full_attention"})
    if model_type in SINKS:
        why_not = f"with a model of type {model_type}, whose attention has sinks"
    elif other:
        why_not = f"with a model of type {model_type}, which has layers of the kind {other[0]}"
    elif experts:  # whose tokens may be counted on the CPU, which ends a recording
        why_not = f"with a model of type {model_type}, which has {experts} experts"
    else:
        unset = {"quantization": "none", "device_map": "", "sharding": "none"}
        found = [name for name, value in unset.items() if settings[name] != value]
        why_not = f"with {found[0]} = {settings[found[0]]}" if found else ""
    if why_not:
        raise BadInput(
            f"generation = transformers-graphs {why_not}",
            expected="a dense decoder with full attention in every layer, whole on each GPU, its weights in 16 or "
            "32 bits: nothing else was tried",
            hint="--set generation=vllm-colocate, or transformers",
        )
