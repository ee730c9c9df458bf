"""The sizes of a causal language model, and exact parameter counts from them. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """The layer structure of one model_type in transformers (read in its modeling files, 4.56 to 5.17)."""

    qkv_bias: str = "attention_bias"  # a boolean key of config.json, "yes" or "no"
    output_bias: str = "attention_bias"
    norms: int = 2  # per layer
    qk_norm: bool = False  # each head normalises its query and key
    fused: bool = False  # q, k and v are one matrix; so are gate and up
    float_norm: bool = False  # the norm multiplies by its weight in float32 and saves that operand


FAMILIES = {
    "llama": Family(),
    "mistral": Family("no", "no"),
    "qwen2": Family("yes", "no"),
    "qwen3": Family(qk_norm=True),
    "phi3": Family("no", "no", fused=True),
    "gemma2": Family(norms=4, float_norm=True),
    "gemma3_text": Family(norms=4, qk_norm=True, float_norm=True),
    "mixtral": Family("no", "no"),
    "qwen2_moe": Family("qkv_bias", "no"),
    "qwen3_moe": Family(qk_norm=True),
    "gpt_oss": Family("yes", "yes", float_norm=True),
    "gpt2": Family("yes", "yes", fused=True),
}


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a causal language model. `notes` lists the assumptions."""

    model_type: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int  # of one expert in a mixture of experts
    experts: int
    experts_per_token: int
    dense_layers: int  # layers without experts; in a dense model all layers
    dense_intermediate: int
    shared_intermediate: int  # of the shared expert, which processes every token
    positions: int  # learned position embeddings (gpt2)
    tied: bool  # embeddings and head share their weights
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    sliding_window: int  # in tokens; 0: none
    sliding_layers: int  # layers with sliding-window attention
    quant_method: str  # quantization method of the checkpoint: mxfp4, bitsandbytes, ...; empty: none
    bitsandbytes_type: str = ""  # nf4, fp4 or int8 for a bitsandbytes checkpoint
    max_positions: int = 0  # max_position_embeddings; 0: unknown
    double_quantization: bool = False  # the scales of nf4 and fp4 are quantized as well
    dtype: str = ""  # of the checkpoint; empty: unknown
    notes: tuple[str, ...] = ()

    @property
    def family(self) -> Family:
        """Return the structure of this model_type; an unknown one counts as a Llama."""
        return FAMILIES.get(self.model_type, FAMILIES["llama"])

    @property
    def query_size(self) -> int:
        """Return the width of the queries of all heads."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Return the width of the keys (or values) of all heads."""
        return self.kv_heads * self.head_dim

    @property
    def expert_layers(self) -> int:
        """Return the number of layers with experts."""
        return self.layers - self.dense_layers


def count_parameters(shape: ModelShape) -> dict[str, int]:
    """Return the parameters by part, with biases and norms; exact for the families above."""
    width, family = shape.hidden, shape.family
    attention = width * (shape.query_size + 2 * shape.kv_size) + shape.query_size * width
    attention += (shape.query_size + 2 * shape.kv_size) * shape.qkv_bias + width * shape.output_bias
    attention += shape.heads * (shape.model_type == "gpt_oss")  # one attention sink per head
    norm = 2 * width if shape.model_type == "gpt2" else width  # LayerNorm has a bias
    norms = shape.layers * (family.norms * norm + 2 * shape.head_dim * family.qk_norm) + norm
    dense = shape.dense_layers * _dense_mlp(shape, shape.dense_intermediate)
    experts, router = _experts(shape)
    return {
        "embeddings": shape.vocab * width + shape.positions * width,
        "attention": shape.layers * attention,
        "mlp": dense + shape.expert_layers * router,
        "experts": shape.expert_layers * experts,
        "norms": norms,
        "head": 0 if shape.tied else shape.vocab * width,
    }


def _dense_mlp(shape: ModelShape, inner: int) -> int:
    gated = shape.model_type != "gpt2"
    weights = (3 if gated else 2) * shape.hidden * inner
    return weights + (((2 if gated else 1) * inner + shape.hidden) if shape.mlp_bias else 0)


def _experts(shape: ModelShape) -> tuple[int, int]:
    """Return the parameters of one layer: (all experts, router and shared expert)."""
    router = shape.hidden * shape.experts
    if shape.model_type == "gpt_oss":  # every expert and the router have biases
        biases = shape.experts * (2 * shape.intermediate + shape.hidden)
        return 3 * shape.experts * shape.hidden * shape.intermediate + biases, router + shape.experts
    shared = 3 * shape.hidden * shape.shared_intermediate
    gate = shape.hidden if shape.shared_intermediate else 0
    return 3 * shape.experts * shape.hidden * shape.intermediate, router + shared + gate


@dataclass(frozen=True)
class GatheredSizes:
    """Bytes of the parts that FSDP2 shards and gathers: each layer, and the parameters outside the layers."""

    model: int
    layer: int
    ends: int  # embeddings, last norm and head, which stay gathered from the forward to the backward pass

    def during_training(self) -> int:
        """Return the bytes gathered at once: the ends, the current layer and the prefetched next one."""
        return self.ends + 2 * self.layer

    def gradients(self, size: int) -> int:
        """Return the bytes of the largest part's gradients, and of their float32 copy for the reduction."""
        largest = max(self.layer, self.ends)
        return largest + largest // size * 4


def gathered_sizes(shape: ModelShape, size: int) -> GatheredSizes:
    """Return the gathered sizes for parameters of `size` bytes each."""
    counts = count_parameters(shape)
    layers = sum(counts[name] for name in ("attention", "mlp", "experts", "norms"))
    ends = counts["embeddings"] + counts["head"]
    return GatheredSizes((layers + ends) * size, layers // shape.layers * size, ends * size)
