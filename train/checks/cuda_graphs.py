"""Requirements of cuda_graph_decoding that are known without the model. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from checks.engines import WITHOUT_GRAPHS
from settings import BadInput, format_value

SINKS = ("gpt_oss",)  # model types with learnt attention sinks, as in checks.attention


def check_cuda_graphs(
    settings: Mapping[str, Any], model_type: str = "", layer_types: Collection[str] = (), experts: int = 0
) -> None:
    """Refuse settings and models that CUDA-graph decoding was not tested with."""
    if not settings["cuda_graph_decoding"]:
        return
    other_layers = sorted(set(layer_types) - {"full_attention"})
    if model_type in SINKS:
        obstacle = f"with a model of type {model_type}, whose attention has sinks"
    elif other_layers:
        obstacle = f"with a model of type {model_type}, which has layers of the kind {other_layers[0]}"
    elif experts:  # whose tokens may be counted on the CPU, which a capture does not allow
        obstacle = f"with a model of type {model_type}, which has {experts} experts"
    else:
        found = [name for name in ("load_in_4bit", "load_in_8bit", "device_map", "fsdp") if settings[name]]
        obstacle = f"with {found[0]} = {format_value(settings[found[0]])}" if found else ""
    if obstacle:
        raise BadInput(
            f"cuda_graph_decoding = true {obstacle}",
            expected="a dense decoder with full attention in every layer, unsharded, its weights in 16 or 32 bits: "
            "nothing else is tested",
            hint=f"{WITHOUT_GRAPHS}, and --set use_vllm=true for vLLM",
        )
