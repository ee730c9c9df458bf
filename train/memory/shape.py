"""A causal language model's sizes and exact parameter counts, from its config.json. Standard library only."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hub
from settings import BadInput

KNOWN_MODELS = Path(__file__).parent / "known_models.toml"
HUB_NAME = re.compile(r"[\w][\w.-]*(?:/[\w][\w.-]*)?")
GIVE_CONFIG = "save the model's config.json and run: envdoctor plan --model ./config.json"


@dataclass(frozen=True)
class Family:
    """How the models of one model_type in transformers are built (read in its modeling files of 4.56 to 5.17)."""

    qkv_bias: str = "attention_bias"  # a key of the config, "yes" or "no"
    output_bias: str = "attention_bias"
    norms: int = 2  # a layer
    tied: bool = False  # what a config that does not say tie_word_embeddings means
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
    "gemma2": Family(norms=4, tied=True, float_norm=True),
    "gemma3_text": Family(norms=4, tied=True, qk_norm=True, float_norm=True),
    "mixtral": Family("no", "no"),
    "qwen2_moe": Family("qkv_bias", "no"),
    "qwen3_moe": Family(qk_norm=True),
    "gpt_oss": Family("yes", "yes", float_norm=True),
    "gpt2": Family("yes", "yes", tied=True, fused=True),
}
# gpt2 has names of its own.
GPT2_NAMES = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
}  # fmt: skip


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
    checkpoint: str  # mxfp4, or the dtype of the weights on disk; empty: not said
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


def read_shape(model: str, environment: Mapping[str, str] | None = None, revision: str = "") -> tuple[Shape, str]:
    """(shape, where it was read) of a folder, a config.json, a model in the hub's cache, one we know, or of the hub.

    From the hub config.json alone is read.
    """
    environment = os.environ if environment is None else environment
    path = Path(model).expanduser()
    if path.is_dir() or path.suffix == ".json":
        file = path / "config.json" if path.is_dir() else path
        return shape_of(_read_json(file), str(file)), str(file)
    cached = find_cached(model, environment)
    if cached:
        return shape_of(_read_json(cached), str(cached)), str(cached)
    models = tomllib.loads(KNOWN_MODELS.read_text(encoding="utf-8"))["model"]
    known = {name: row for row in models for name in row["names"]}
    if model in known:
        row = known[model]
        return shape_of(row["config"], f"known_models.toml: {model}"), row["source"]
    near = difflib.get_close_matches(model, list(known), 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    expected = "a folder with config.json, a config.json, a model of the hub, or one of " + ", ".join(sorted(known))
    seen = f"the sizes of {model!r} are not known: no such folder, not in the hub's cache here"
    if not HUB_NAME.fullmatch(model):
        raise BadInput(f"{seen}{meant}", expected=expected, hint=GIVE_CONFIG)
    if variable := hub.offline(environment):
        seen = f"{seen}, and {variable} keeps it from the hub{meant}"
        raise BadInput(seen, expected=expected, hint=f"unset {variable}, or {GIVE_CONFIG}")
    try:
        content = hub.read_model_file(model, "config.json", revision, most=20.0)  # the tool waits for 30
    except hub.HubTrouble as trouble:
        hint = GIVE_CONFIG if trouble.away else f"{trouble.hint}; or {GIVE_CONFIG}"
        raise BadInput(f"{seen}, and from the hub: {trouble.reason}{meant}", expected=expected, hint=hint) from None
    place = f"{hub.endpoint()}/{model}, config.json{f' at {revision}' if revision else ''}"
    return shape_of(_parse_json(content, place), place), place


def find_cached(model: str, environment: Any) -> Path | None:
    """A model's config.json in the hub's cache; nothing is downloaded."""
    home = environment.get("HF_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".cache/huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or Path(home) / "hub")
    if not model or model.startswith((".", "/")) or ".." in model:
        return None
    found = (cache / f"models--{model.replace('/', '--')}" / "snapshots").glob("*/config.json")
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def _read_json(file: Path) -> dict[str, Any]:
    expected = "a model's config.json"
    try:
        if file.stat().st_size > 4 << 20:
            raise BadInput(f"{file} has {file.stat().st_size} bytes", expected=expected, hint=GIVE_CONFIG)
        content = file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}", expected=expected, hint=GIVE_CONFIG) from error
    return _parse_json(content, str(file))


def _parse_json(content: bytes, place: str) -> dict[str, Any]:
    expected = "a model's config.json"
    try:
        data = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place} is not JSON: {str(error)[:200]}", expected=expected, hint=GIVE_CONFIG) from error
    if not isinstance(data, dict):
        raise BadInput(f"{place} holds a JSON {type(data).__name__}", expected=expected, hint=GIVE_CONFIG)
    return data
