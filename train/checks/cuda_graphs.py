"""Requirements of generation = transformers-graphs that are known without the model. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from settings import BadInput

SINKS = ("gpt_oss",)  # model types with learnt attention sinks, as in checks.attention


def check_cuda_graphs(
    settings: Mapping[str, Any], model_type: str = "", layer_types: Collection[str] = (), experts: int = 0
) -> None:
    """Refuse settings and models that CUDA-graph decoding was not tested with."""
    if settings["generation"] != "transformers-graphs":
        return
    other_layers = sorted(set(layer_types) - {"full_attention"})
    if model_type in SINKS:
        obstacle = f"with a model of type {model_type}, whose attention has sinks"
    elif other_layers:
        obstacle = f"with a model of type {model_type}, which has layers of the kind {other_layers[0]}"
    elif experts:  # whose tokens may be counted on the CPU, which a capture does not allow
        obstacle = f"with a model of type {model_type}, which has {experts} experts"
    else:
        unset = {"quantization": "none", "device_map": "", "sharding": "none"}
        found = [name for name, value in unset.items() if settings[name] != value]
        obstacle = f"with {found[0]} = {settings[found[0]]}" if found else ""
    if obstacle:
        raise BadInput(
            f"generation = transformers-graphs {obstacle}",
            expected="a dense decoder with full attention in every layer, unsharded, its weights in 16 or 32 bits: "
            "nothing else is tested",
            hint="--set generation=vllm-colocate, or transformers",
        )
