"""A model's config.json as a Shape: every key checked, what is not said filled in. Standard library only."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

from checks.dtypes import quantization_method, said_by
from memory.shape import FAMILIES, Shape
from settings import BadInput, shorten

GIVE_CONFIG = "save the model's config.json and run: envdoctor plan --model ./config.json"
LARGEST = 1 << 24  # of any size: 60 times the largest vocabulary there is
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
EXPERTS_A_TOKEN = ("num_experts_per_tok", "experts_per_token")
ALIASES = (EXPERTS, EXPERTS_A_TOKEN)
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


@functools.cache
def architectures() -> dict[str, dict[str, Any]]:
    """What a config of each model_type leaves unsaid."""
    return tomllib.loads((Path(__file__).parent / "architectures.toml").read_text(encoding="utf-8"))


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
        self.fill()

    def fill(self) -> None:
        """What the config does not say, as transformers would have it."""
        unsaid = {
            key: value
            for key, value in architectures().get(self.type, {}).items()
            if not any(name in self.config for name in next((names for names in ALIASES if key in names), (key,)))
        }
        self.config |= unsaid
        if unsaid:
            said = ", ".join(f"{key} = {str(value).lower()}" for key, value in unsaid.items())
            self.notes.append(f"not in the config, taken as transformers has it for {self.type}: {said}")

    def number(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """The first of these keys that the config has, a whole number."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
                wanted = f"{key} as a whole number from {least} to {LARGEST:,}"
                self.refuse(f"{key} is {shorten(repr(value))}", wanted)
            return value
        if default is None:
            self.refuse(f"{keys[0]} is missing", f"the key {' or '.join(keys)}")
        return default

    def switch(self, key: str, said: dict[str, Any] | None = None) -> bool:
        """This key, of the config or of a part of it, which is on or off; `null` is off, as transformers has it."""
        value = (self.config if said is None else said).get(key)
        if not isinstance(value, bool | None):
            self.refuse(f"{key} is {shorten(repr(value))}", f"{key} as true or false")
        return bool(value)

    def refuse(self, seen: str, expected: str) -> Any:
        """Stop: the config cannot be used."""
        raise BadInput(f"{self.source}: {seen}", expected=f"a causal language model's config with {expected}",
                       hint=GIVE_CONFIG)  # fmt: skip

    def bias(self, rule: str) -> bool:
        """A family's "yes", "no", or the config's own key."""
        return rule == "yes" if rule in ("yes", "no") else self.switch(rule)

    def shape(self) -> Shape:
        """All sizes."""
        heads, hidden = self.number("num_attention_heads"), self.number("hidden_size")
        layers = self.number("num_hidden_layers")
        kv_heads = heads if self.type == "gpt2" else self.number("num_key_value_heads", default=heads)
        if heads % kv_heads:
            self.refuse(f"num_key_value_heads is {kv_heads}", f"a divisor of num_attention_heads = {heads}")
        if hidden % heads and self.config.get("head_dim") is None:
            self.refuse(f"hidden_size is {hidden}", f"a multiple of num_attention_heads = {heads}, or with head_dim")
        head_dim = self.number("head_dim", default=hidden // heads)
        dense = self.number("intermediate_size", default=4 * hidden if self.type == "gpt2" else None)
        experts = self.number(*EXPERTS, default=0, least=0)
        each_token = self.number(*EXPERTS_A_TOKEN, default=1) if experts else 0
        if each_token > experts:
            self.refuse(f"{EXPERTS_A_TOKEN[0]} is {each_token}", f"no more of them than the {experts} experts")
        dense_layers = self.count_dense_layers(layers) if experts else layers
        window, window_layers = self.window(layers)
        quantized, double = self.quantization()
        return Shape(
            model_type=self.type, vocab=self.number("vocab_size"), hidden=hidden, layers=layers, heads=heads,
            kv_heads=kv_heads, head_dim=head_dim,
            intermediate=self.number("moe_intermediate_size", default=dense) if experts else dense,
            experts=experts, experts_per_token=each_token,
            dense_layers=dense_layers, dense_intermediate=dense,
            shared_intermediate=self.number("shared_expert_intermediate_size", default=0, least=0) if experts else 0,
            positions=self.number("max_position_embeddings") if self.type == "gpt2" else 0,
            tied=self.switch("tie_word_embeddings"),
            qkv_bias=self.bias(self.family.qkv_bias), output_bias=self.bias(self.family.output_bias),
            mlp_bias=self.type == "gpt2" or self.switch("mlp_bias"),
            window=window, window_layers=window_layers, method=self.method(), quantized=quantized,
            double=double, context=self.number("max_position_embeddings", default=0, least=0),
            notes=tuple(self.notes),
        )  # fmt: skip

    def count_dense_layers(self, layers: int) -> int:
        """Layers of a mixture of experts that have none (Qwen's mlp_only_layers and decoder_sparse_step)."""
        only, step = self.config.get("mlp_only_layers") or [], self.number("decoder_sparse_step", default=1)
        if not isinstance(only, list) or not all(type(layer) is int for layer in only):
            self.refuse(f"mlp_only_layers is {shorten(repr(only))}", "mlp_only_layers as a list of layers")
        return sum(1 for layer in range(layers) if layer in only or (layer + 1) % step)

    def window(self, layers: int) -> tuple[int, int]:
        """The sliding window, and the layers that have it."""
        window = self.number("sliding_window", default=0, least=0)
        if not window or (self.type.startswith("qwen") and not self.switch("use_sliding_window")):
            return 0, 0
        types = self.config.get("layer_types")
        if types is not None:
            if not isinstance(types, list) or len(types) != layers:
                self.refuse(f"layer_types is {shorten(repr(types))}", f"layer_types as a list of {layers} layers")
            return window, sum(1 for kind in types if kind == "sliding_attention")
        if self.type in ("gpt_oss", "gemma2"):
            return window, (layers + 1) // 2  # they alternate, the first one slides
        if self.type == "gemma3_text":  # each sixth looks back over everything
            return window, layers - layers // self.number("sliding_window_pattern", default=6)
        if self.type in ("qwen2", "qwen3"):
            return window, max(0, layers - self.number("max_window_layers", default=28, least=0))
        return window, layers if self.type in ("mistral", "phi3", "mixtral") else 0

    def method(self) -> str:
        """What the checkpoint is quantised by."""
        method = quantization_method(self.config.get("quantization_config"))
        if method not in ("", "mxfp4", "bitsandbytes"):
            self.notes.append(f"the checkpoint is quantised by {method}: counted in 16 bits, more than it may need")
        return method

    def quantization(self) -> tuple[str, bool]:
        """(nf4, fp4 or int8, as bitsandbytes wrote the linear layers; whether their scales are quantised, too)."""
        found = said_by(self.config.get("quantization_config"))
        if quantization_method(found) != "bitsandbytes":
            return "", False
        eight, four, double = (
            self.switch(key, found) for key in ("load_in_8bit", "load_in_4bit", "bnb_4bit_use_double_quant")
        )
        kind = found.get("bnb_4bit_quant_type", "fp4")  # BitsAndBytesConfig's default
        if kind not in ("nf4", "fp4"):
            self.refuse(f"bnb_4bit_quant_type is {shorten(repr(kind))}", "bnb_4bit_quant_type as nf4 or fp4")
        return "int8" if eight else str(kind) if four else "", double
