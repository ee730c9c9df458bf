"""A model's config.json as a Shape: every key checked, what is not said filled in. Standard library only."""

from __future__ import annotations

from typing import Any

from memory.shape import FAMILIES, Shape
from settings import BadInput

GIVE_CONFIG = "save the model's config.json and run: envdoctor plan --model ./config.json"
# gpt2 has names of its own.
GPT2_NAMES = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
}  # fmt: skip


def shape_of(config: dict[str, Any], source: str = "the model's config") -> Shape:
    """The shape that a config (`model.config.to_dict()`, or config.json) describes.

    Sample: {"model_type": "qwen2", "vocab_size": 32000, "hidden_size": 896, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "tie_word_embeddings": true}
    """
    if not isinstance(config, dict):
        raise BadInput(f"{source} holds no JSON object", expected="a model's config.json", hint=GIVE_CONFIG)
    return _Reader(config, source).shape()


parse_config = shape_of


class _Reader:
    """One config while it is read: every key is checked, what is assumed is noted."""

    def __init__(self, config: dict[str, Any], source: str) -> None:
        text = config.get("text_config")  # models that see have their language part nested
        self.config = {**config, **text} if isinstance(text, dict) else dict(config)
        self.source, self.notes = source, []  # type: str, list[str]
        self.type = str(self.config.get("model_type", ""))
        if self.type == "gpt2":
            self.config |= {GPT2_NAMES[k]: v for k, v in self.config.items() if k in GPT2_NAMES and v is not None}
        if isinstance(text, dict):
            self.notes.append("the language part alone: what sees is not counted")
        if self.type not in FAMILIES:
            self.notes.append(f"model_type {self.type!r} is not known here: counted as a Llama of these sizes")
        self.family = FAMILIES.get(self.type, FAMILIES["llama"])

    def number(self, *keys: str, default: int | None = None) -> int:
        """The first of these keys that the config has, a positive whole number."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                self.refuse(f"{key} is {value!r}", f"{key} as a whole number above 0")
            return value
        if default is None:
            self.refuse(f"{keys[0]} is missing", f"the key {' or '.join(keys)}")
        return default

    def refuse(self, seen: str, expected: str) -> Any:
        """Stop: the config cannot be used."""
        raise BadInput(f"{self.source}: {seen}", expected=f"a causal language model's config with {expected}",
                       hint=GIVE_CONFIG)  # fmt: skip

    def switch(self, rule: str) -> bool:
        """A family's "yes", "no", or the config's own key; Qwen2-MoE's qkv_bias is on where it is not said."""
        if rule in ("yes", "no"):
            return rule == "yes"
        return bool(self.config.get(rule, rule == "qkv_bias"))

    def shape(self) -> Shape:
        """All sizes."""
        heads, hidden = self.number("num_attention_heads"), self.number("hidden_size")
        layers = self.number("num_hidden_layers")
        kv_heads = heads if self.type == "gpt2" else self.number("num_key_value_heads", default=heads)
        if heads % kv_heads:
            self.refuse(f"num_key_value_heads is {kv_heads}", f"a divisor of num_attention_heads = {heads}")
        head_dim = self.number("head_dim", default=hidden // heads or 1)
        dense = self.number("intermediate_size", default=4 * hidden if self.type == "gpt2" else None)
        expert_keys = ("num_local_experts", "num_experts", "n_routed_experts")
        experts = next((self.number(k) for k in expert_keys if self.config.get(k)), 0)
        dense_layers = self.count_dense_layers(layers) if experts else layers
        window, window_layers = self.window(layers)
        return Shape(
            model_type=self.type, vocab=self.number("vocab_size"), hidden=hidden, layers=layers, heads=heads,
            kv_heads=kv_heads, head_dim=head_dim,
            intermediate=self.number("moe_intermediate_size", default=dense) if experts else dense,
            experts=experts,
            experts_per_token=self.number("num_experts_per_tok", "experts_per_token", default=1) if experts else 0,
            dense_layers=dense_layers, dense_intermediate=dense,
            shared_intermediate=self.number("shared_expert_intermediate_size", default=0) if experts else 0,
            positions=self.number("max_position_embeddings", default=1024) if self.type == "gpt2" else 0,
            tied=bool(self.config.get("tie_word_embeddings", self.family.tied)),
            qkv_bias=self.switch(self.family.qkv_bias), output_bias=self.switch(self.family.output_bias),
            mlp_bias=self.type == "gpt2" or bool(self.config.get("mlp_bias")),
            window=window, window_layers=window_layers, checkpoint=self.checkpoint(), notes=tuple(self.notes),
        )  # fmt: skip

    def count_dense_layers(self, layers: int) -> int:
        """Layers of a mixture of experts that have none (Qwen's mlp_only_layers and decoder_sparse_step)."""
        only, step = self.config.get("mlp_only_layers") or [], self.config.get("decoder_sparse_step") or 1
        if not isinstance(only, list) or not isinstance(step, int):
            self.refuse("mlp_only_layers or decoder_sparse_step is odd", "a list of layers and a whole number")
        return sum(1 for layer in range(layers) if layer in only or (layer + 1) % step)

    def window(self, layers: int) -> tuple[int, int]:
        """The sliding window, and the layers that have it."""
        window = self.config.get("sliding_window")
        if not isinstance(window, int) or self.config.get("use_sliding_window") is False or window < 1:
            return 0, 0
        types = self.config.get("layer_types")
        if isinstance(types, list):
            return window, sum(1 for kind in types if kind == "sliding_attention")
        if self.type in ("gpt_oss", "gemma2"):
            return window, (layers + 1) // 2  # they alternate, the first one slides
        return window, layers if self.type in ("mistral", "phi3", "mixtral") else 0

    def checkpoint(self) -> str:
        """How the weights lie on disk."""
        quantised = self.config.get("quantization_config")
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        method = method or getattr(quantised, "quant_method", None)  # a loaded model's config holds an object
        if method:
            return str(getattr(method, "value", method))
        return str(self.config.get("dtype") or self.config.get("torch_dtype") or "").removeprefix("torch.")
