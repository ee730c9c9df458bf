"""Which engine samples, and which type quantizes: one word for several settings of TRL and bitsandbytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Engine = Literal["transformers", "transformers-graphs", "transformers-paged", "vllm-colocate", "vllm-server"]
ENGINE_SETTINGS: dict[Engine, str] = {
    "transformers": "use_vllm = false",
    "transformers-graphs": "cuda_graph_decoding = true",
    "transformers-paged": "use_transformers_continuous_batching = true",
    "vllm-colocate": "use_vllm = true",
    "vllm-server": "use_vllm = true with vllm_mode = server",
}
WITHOUT_GRAPHS = "--set cuda_graph_decoding=false"


def sampling_engine(settings: Mapping[str, Any]) -> Engine:
    """The engine that samples the completions."""
    if settings["use_vllm"]:
        return "vllm-server" if settings["vllm_mode"] == "server" else "vllm-colocate"
    if settings["cuda_graph_decoding"]:
        return "transformers-graphs"
    return "transformers-paged" if settings["use_transformers_continuous_batching"] else "transformers"


def quantization_type(settings: Mapping[str, Any]) -> str:
    """The type that bitsandbytes quantizes the weights to: nf4, fp4, int8 or none."""
    if settings["load_in_4bit"]:
        return str(settings["bnb_4bit_quant_type"])
    return "int8" if settings["load_in_8bit"] else "none"


def quantization_setting(kind: str) -> str:
    """The setting of a type, for messages. Sample: nf4 -> load_in_4bit = true."""
    return f"load_in_{8 if kind == 'int8' else 4}bit = true"
