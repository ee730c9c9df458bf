"""Requirements of cuda_graph_decoding that are known without the model. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from checks.engines import WITHOUT_GRAPHS
from settings import BadInput, format_value

CACHE_ALIGNMENT = 16  # tokens; SDPA copies a mask whose length is no multiple
SINKS = ("gpt_oss",)  # model types with learnt attention sinks, as in checks.attention
# Model types whose greedy completions equal those of transformers (tests/trainer/test_train_cuda_graphs.py). Others
# pass their own arguments to the attention, or repeat the keys themselves: GPT-2, GPT-NeoX, OPT and Falcon raise, and
# Nemotron and StableLM with transformers 4.
TESTED_TYPES = (
    "apertus", "arcee", "cohere", "ernie4_5", "gemma", "glm", "glm4", "granite", "llama", "mistral", "olmo",
    "olmo2", "phi", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3", "starcoder2",
)  # fmt: skip


def check_cuda_graphs(
    settings: Mapping[str, Any],
    model_type: str = "",
    layer_types: Collection[str] = (),
    experts: int = 0,
    *,
    window: int = 0,
    length: int = 0,
) -> None:
    """Refuse settings and models that CUDA-graph decoding was not tested with.

    `window` is the sliding window of all layers, `length` the longest prompt and completion, both in tokens; 0: none,
    or unknown.
    """
    if not settings["cuda_graph_decoding"]:
        return
    cache = -(-length // CACHE_ALIGNMENT) * CACHE_ALIGNMENT
    other_layers = sorted(set(layer_types) - {"full_attention"})
    expected = (
        "a dense decoder with full attention in every layer, unsharded, its weights in 16 or 32 bits: nothing else "
        "is tested"
    )
    if model_type in SINKS:
        obstacle = f"with a model of type {model_type}, whose attention has sinks"
    elif other_layers:
        obstacle = f"with a model of type {model_type}, which has layers of the kind {other_layers[0]}"
    elif experts:  # whose tokens may be counted on the CPU, which a capture does not allow
        obstacle = f"with a model of type {model_type}, which has {experts} experts"
    elif model_type and model_type not in TESTED_TYPES:
        obstacle = f"with a model of type {model_type}, which is not tested"
        expected = f"one of {', '.join(TESTED_TYPES)}"
    elif 0 < window < cache:
        obstacle = f"with a sliding window of {window} tokens and {length} tokens of prompt and completion"
        expected = f"at most {window // CACHE_ALIGNMENT * CACHE_ALIGNMENT} tokens, none of which leaves the window"
    else:
        found = [name for name in ("load_in_4bit", "load_in_8bit", "device_map", "fsdp") if settings[name]]
        obstacle = f"with {found[0]} = {format_value(settings[found[0]])}" if found else ""
    if obstacle:
        raise BadInput(
            f"cuda_graph_decoding = true {obstacle}",
            expected=expected,
            hint=f"{WITHOUT_GRAPHS}, and --set use_vllm=true for vLLM",
        )
