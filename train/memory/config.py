"""Parse a model's config.json into a ModelShape: check every key and fill in omitted ones. Standard library only."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from checks.dtypes import as_dict, quantization_method
from memory.shape import FAMILIES, ModelShape
from settings import BadInput, shorten

CONFIG_HINT = "save the model's config.json and run: envdoctor plan --model ./config.json"
MAX_SIZE = 1 << 24  # of any number in a config: 60 times the largest known vocabulary
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token")
ALIASES = (EXPERTS, EXPERTS_PER_TOKEN)
GPT2_NAMES = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
}  # fmt: skip


def parse_config(config: dict[str, Any], source: str = "the model's config") -> ModelShape:
    """Return the shape that a config (`model.config.to_dict()` or config.json) describes.

    Sample: {"model_type": "qwen2", "vocab_size": 32000, "hidden_size": 896, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "tie_word_embeddings": true}
    """
    if not isinstance(config, dict):
        raise BadInput(f"{source} contains no JSON object", expected="a model's config.json", hint=CONFIG_HINT)
    return _ConfigParser(config, source).shape()


@functools.cache
def architecture_defaults() -> dict[str, dict[str, Any]]:
    """Return transformers' default values of each model_type's config."""
    return tomllib.loads((Path(__file__).parent / "architectures.toml").read_text(encoding="utf-8"))


class _ConfigParser:
    """Reads one config: checks each value and notes each assumption."""

    def __init__(self, config: dict[str, Any], source: str) -> None:
        text = config.get("text_config")  # multimodal configs nest the language model
        self.config = {**config, **text} if isinstance(text, dict) else dict(config)
        self.source, self.notes = source, []  # type: str, list[str]
        self.type = str(self.config.get("model_type", ""))
        if self.type == "gpt2":
            self.config |= {GPT2_NAMES[k]: v for k, v in self.config.items() if k in GPT2_NAMES and v is not None}
        if isinstance(text, dict):
            self.notes.append("only the language model is counted, without the vision part")
        if self.type not in FAMILIES:
            self.notes.append(f"unknown model_type {self.type!r}: counted as a Llama with these sizes")
        self.family = FAMILIES.get(self.type, FAMILIES["llama"])
        self.add_defaults()

    def add_defaults(self) -> None:
        """Add the keys that the config omits, with transformers' defaults."""
        omitted = {
            key: value
            for key, value in architecture_defaults().get(self.type, {}).items()
            if not any(name in self.config for name in next((names for names in ALIASES if key in names), (key,)))
        }
        self.config |= omitted
        if omitted:
            values = ", ".join(f"{key} = {str(value).lower()}" for key, value in omitted.items())
            self.notes.append(f"not in the config, transformers' default for {self.type}: {values}")

    def number(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """Return the first of these keys that the config has, as a whole number."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_SIZE:
                expected = f"{key} as a whole number from {minimum} to {MAX_SIZE:,}"
                self.fail(f"{key} is {shorten(repr(value))}", expected)
            return value
        if default is None:
            self.fail(f"{keys[0]} is missing", f"the key {' or '.join(keys)}")
        return default

    def switch(self, key: str, section: dict[str, Any] | None = None) -> bool:
        """Return a boolean key of the config or of a section; null counts as false, as in transformers."""
        value = (self.config if section is None else section).get(key)
        if not isinstance(value, bool | None):
            self.fail(f"{key} is {shorten(repr(value))}", f"{key} as true or false")
        return bool(value)

    def fail(self, problem: str, expected: str) -> NoReturn:
        """Raise BadInput for this config."""
        raise BadInput(f"{self.source}: {problem}", expected=f"a causal language model's config with {expected}",
                       hint=CONFIG_HINT)  # fmt: skip

    def bias(self, rule: str) -> bool:
        """Resolve a family's "yes", "no", or config key."""
        return rule == "yes" if rule in ("yes", "no") else self.switch(rule)

    def shape(self) -> ModelShape:
        """Return all sizes."""
        heads, hidden = self.number("num_attention_heads"), self.number("hidden_size")
        layers = self.number("num_hidden_layers")
        kv_heads = heads if self.type == "gpt2" else self.number("num_key_value_heads", default=heads)
        if heads % kv_heads:
            self.fail(f"num_key_value_heads is {kv_heads}", f"a divisor of num_attention_heads = {heads}")
        if hidden % heads and self.config.get("head_dim") is None:
            self.fail(f"hidden_size is {hidden}", f"a multiple of num_attention_heads = {heads}, or with head_dim")
        head_dim = self.number("head_dim", default=hidden // heads)
        dense = self.number("intermediate_size", default=4 * hidden if self.type == "gpt2" else None)
        experts = self.number(*EXPERTS, default=0, minimum=0)
        per_token = self.number(*EXPERTS_PER_TOKEN, default=1) if experts else 0
        if per_token > experts:
            self.fail(f"{EXPERTS_PER_TOKEN[0]} is {per_token}", f"at most the number of experts, {experts}")
        dense_layers = self.count_dense_layers(layers) if experts else layers
        window, sliding_layers = self.sliding_window(layers)
        bitsandbytes_type, double_quantization = self.bitsandbytes_options()
        positions = self.number("max_position_embeddings", default=0, minimum=0)
        if not positions:
            self.notes.append("the model's context (max_position_embeddings) is not known, and not checked")
        return ModelShape(
            model_type=self.type, vocab=self.number("vocab_size"), hidden=hidden, layers=layers, heads=heads,
            kv_heads=kv_heads, head_dim=head_dim,
            intermediate=self.number("moe_intermediate_size", default=dense) if experts else dense,
            experts=experts, experts_per_token=per_token,
            dense_layers=dense_layers, dense_intermediate=dense,
            shared_intermediate=(
                self.number("shared_expert_intermediate_size", default=0, minimum=0) if experts else 0
            ),
            positions=self.number("max_position_embeddings") if self.type == "gpt2" else 0,
            tied=self.switch("tie_word_embeddings"),
            qkv_bias=self.bias(self.family.qkv_bias), output_bias=self.bias(self.family.output_bias),
            mlp_bias=self.type == "gpt2" or self.switch("mlp_bias"),
            sliding_window=window, sliding_layers=sliding_layers, quant_method=self.quant_method(),
            bitsandbytes_type=bitsandbytes_type, double_quantization=double_quantization,
            max_positions=positions, dtype=self.stored_dtype(),
            notes=tuple(self.notes),
        )  # fmt: skip

    def count_dense_layers(self, layers: int) -> int:
        """Return the layers of a mixture of experts without experts (mlp_only_layers, decoder_sparse_step)."""
        dense, step = self.config.get("mlp_only_layers") or [], self.number("decoder_sparse_step", default=1)
        if not isinstance(dense, list) or not all(type(layer) is int for layer in dense):
            self.fail(f"mlp_only_layers is {shorten(repr(dense))}", "mlp_only_layers as a list of layers")
        return sum(1 for layer in range(layers) if layer in dense or (layer + 1) % step)

    def sliding_window(self, layers: int) -> tuple[int, int]:
        """Return (the sliding window in tokens, the number of layers that use it)."""
        window = self.number("sliding_window", default=0, minimum=0)
        if not window or (self.type.startswith("qwen") and not self.switch("use_sliding_window")):
            return 0, 0
        types = self.config.get("layer_types")
        if types is not None:
            if not isinstance(types, list) or len(types) != layers:
                self.fail(f"layer_types is {shorten(repr(types))}", f"layer_types as a list of {layers} layers")
            return window, sum(1 for kind in types if kind == "sliding_attention")
        if self.type in ("gpt_oss", "gemma2"):
            return window, (layers + 1) // 2  # every other layer, starting with the first
        if self.type == "gemma3_text":  # every sixth layer uses full attention
            return window, layers - layers // self.number("sliding_window_pattern", default=6)
        if self.type in ("qwen2", "qwen3"):
            return window, max(0, layers - self.number("max_window_layers", default=28, minimum=0))
        return window, layers if self.type in ("mistral", "phi3", "mixtral") else 0

    def stored_dtype(self) -> str:
        """Return the data type of the checkpoint's weights; empty where the configuration has none."""
        named = self.config.get("dtype") or self.config.get("torch_dtype")
        return str(named).removeprefix("torch.") if named else ""

    def quant_method(self) -> str:
        """Return the quantization method of the checkpoint."""
        method = quantization_method(self.config.get("quantization_config"))
        if method not in ("", "mxfp4", "bitsandbytes"):
            self.notes.append(f"the checkpoint is quantized by {method}: counted in 16 bits, an upper bound")
        return method

    def bitsandbytes_options(self) -> tuple[str, bool]:
        """Return (nf4, fp4, int8 or an empty string; whether the scales are quantized as well)."""
        section = as_dict(self.config.get("quantization_config"))
        if quantization_method(section) != "bitsandbytes":
            return "", False
        eight_bit, four_bit, double = (
            self.switch(key, section) for key in ("load_in_8bit", "load_in_4bit", "bnb_4bit_use_double_quant")
        )
        kind = section.get("bnb_4bit_quant_type", "fp4")  # BitsAndBytesConfig's default
        if kind not in ("nf4", "fp4"):
            self.fail(f"bnb_4bit_quant_type is {shorten(repr(kind))}", "bnb_4bit_quant_type as nf4 or fp4")
        return "int8" if eight_bit else str(kind) if four_bit else "", double
