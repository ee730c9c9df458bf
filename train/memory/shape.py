"""A causal language model's sizes, and exact parameter counts of them. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """How the models of one model_type in transformers are built (read in its modeling files of 4.56 to 5.17)."""

    qkv_bias: str = "attention_bias"  # a key of the config, "yes" or "no"
    output_bias: str = "attention_bias"
    norms: int = 2  # a layer
    qk_norm: bool = False  # norms on each head's query and key
    fused: bool = False  # q, k and v, as gate and up, are one matrix each
    float_norm: bool = False  # the norm multiplies in float32, and keeps that product's operand
    experts_in_autocast: bool = True


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
class Shape:
    """Sizes of a causal language model. `notes` says what had to be assumed."""

    model_type: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int  # of one expert, where there are experts
    experts: int
    experts_per_token: int
    dense_layers: int  # layers without experts, all of them in a dense model
    dense_intermediate: int
    shared_intermediate: int  # the expert that every token goes through
    positions: int  # learnt position embeddings (gpt2)
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    window: int  # 0: none
    window_layers: int  # layers that look back over the window alone
    method: str  # that the checkpoint is quantised by: mxfp4, bitsandbytes, ...; empty: none
    quantized: str = ""  # nf4, fp4 or int8, where bitsandbytes wrote the checkpoint
    context: int = 0  # tokens that its positions reach; 0: not said
    double: bool = False  # the scales of nf4 and fp4 are quantised, too
    notes: tuple[str, ...] = ()

    @property
    def family(self) -> Family:
        """How this model_type is built; an unknown one is taken for a Llama."""
        return FAMILIES.get(self.model_type, FAMILIES["llama"])

    @property
    def query_size(self) -> int:
        """Width of all heads' queries together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all heads' keys (or values) together."""
        return self.kv_heads * self.head_dim

    @property
    def expert_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.dense_layers


def count_parameters(shape: Shape) -> dict[str, int]:
    """Parameters by part; exact for the families above, biases and norms included."""
    width, family = shape.hidden, shape.family
    attention = width * (shape.query_size + 2 * shape.kv_size) + shape.query_size * width
    attention += (shape.query_size + 2 * shape.kv_size) * shape.qkv_bias + width * shape.output_bias
    attention += shape.heads * (shape.model_type == "gpt_oss")  # a sink a head
    norm = 2 * width if shape.model_type == "gpt2" else width  # LayerNorm has a bias
    norms = shape.layers * (family.norms * norm + 2 * shape.head_dim * family.qk_norm) + norm
    dense = shape.dense_layers * _dense_mlp(shape, shape.dense_intermediate)
    experts, other = _experts(shape)
    return {
        "embeddings": shape.vocab * width + shape.positions * width,
        "attention": shape.layers * attention,
        "mlp": dense + shape.expert_layers * other,
        "experts": shape.expert_layers * experts,
        "norms": norms,
        "head": 0 if shape.tied else shape.vocab * width,
    }


def _dense_mlp(shape: Shape, inner: int) -> int:
    gated = shape.model_type != "gpt2"
    weights = (3 if gated else 2) * shape.hidden * inner
    return weights + (((2 if gated else 1) * inner + shape.hidden) if shape.mlp_bias else 0)


def _experts(shape: Shape) -> tuple[int, int]:
    """(the experts of a layer, its router and shared expert)."""
    router = shape.hidden * shape.experts
    if shape.model_type == "gpt_oss":  # biases on every expert and on the router
        biases = shape.experts * (2 * shape.intermediate + shape.hidden)
        return 3 * shape.experts * shape.hidden * shape.intermediate + biases, router + shape.experts
    shared = 3 * shape.hidden * shape.shared_intermediate
    gate = shape.hidden if shape.shared_intermediate else 0
    return 3 * shape.experts * shape.hidden * shape.intermediate, router + shared + gate
