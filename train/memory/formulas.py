"""Formulas of the memory plan: the bytes that each part of a GRPO step allocates. Standard library only, no settings.

The activation formulas were calibrated against the storages that autograd saves (torch 2.8 and 2.13, transformers
4.57 and 5.17); tests/trainer/test_train_memory_measured.py repeats that measurement. A precision is float32, bfloat16
(float16 needs the same memory), or mixed: float32 weights under autocast.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.shape import ModelShape, count_parameters

GIB = 1 << 30
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MXFP4_BYTES = 4.25 / 8  # 32 four-bit numbers share a scale of one byte (OCP MX specification)
# NF4 and FP4: half a byte, and one float32 scale per 64 numbers. With double quantization that scale is one byte, and
# 256 of them share a float32 (block sizes 64 and 256 of bitsandbytes).
FOUR_BIT_BYTES, FOUR_BIT_DOUBLE_BYTES = 0.5 + 4 / 64, 0.5 + 1 / 64 + 4 / (64 * 256)
FOUR_BIT_TYPES = ("nf4", "fp4")  # their layers return the input's dtype, which is float32 behind PEFT's norms
CUDA_CONTEXT = int(0.6 * GIB)  # CUDA context and cuBLAS workspace of one process
NCCL_BUFFERS = int(0.7 * GIB)  # per process
VLLM_OUTSIDE_SHARE = int(1.0 * GIB)  # CUDA graphs and workspaces that vLLM allocates in addition to its share
VLLM_ASLEEP = int(1.5 * GIB)  # CUDA graphs and buffers that remain at sleep level 1
VLLM_INSIDE_SHARE = int(2.0 * GIB)  # the profiled forward pass, part of vLLM's share
FRAGMENTATION = 0.03  # share of temporary memory that torch's allocator cannot reuse


@dataclass(frozen=True)
class MicroBatch:
    """One forward and backward pass: the number and length of its sequences, and how it is computed."""

    sequences: int
    prompt: int
    completion: int
    precision: str  # float32, bfloat16, mixed
    attention: str  # only eager saves the attention scores
    checkpointing: bool = False
    lora: str = ""  # "": full fine-tuning; attention: no LoRA in the MLP; all
    liger: bool = False  # Liger kernels, which recompute instead of saving
    quantized: str = ""  # nf4, fp4 or int8 prepared by PEFT, so that tensors between the layers are float32
    masked: bool = True  # without a mask SDPA does not expand grouped keys and values

    @property
    def length(self) -> int:
        """Return the tokens of one sequence."""
        return self.prompt + self.completion

    @property
    def tokens(self) -> int:
        """Return the tokens of all sequences."""
        return self.sequences * self.length


def layer_activations(shape: ModelShape, batch: MicroBatch, *, experts: bool) -> float:
    """Return the bytes per token that one layer saves for the backward pass."""
    feed_forward = _expert_activations(shape, batch) if experts else _mlp_activations(shape, batch)
    return _norm_activations(shape, batch) + _attention_activations(shape, batch) + feed_forward


def _norm_activations(shape: ModelShape, batch: MicroBatch) -> float:
    """RMSNorm saves its input in float32 and, for a trained weight, the normalised input in the model's dtype."""
    family, wide = shape.family, batch.precision in ("float32", "mixed")
    normalised = 4 if wide or family.float_norm else 2
    if batch.lora and not family.float_norm:
        normalised = 0  # a frozen weight needs no gradient
    if batch.liger:  # saves the input in its own dtype
        return family.norms * shape.hidden * (4 if wide else 2)
    saved = family.norms * shape.hidden * (4 + normalised)
    if family.qk_norm:  # its input is the output of a linear layer: bfloat16 under autocast
        per_element = 4 + (0 if batch.lora else 4 if batch.precision == "float32" else 2)
        saved += (shape.query_size + shape.kv_size) * per_element
    return saved


def _linear_inputs(shape: ModelShape, batch: MicroBatch, linears: int, *, trained: bool) -> float:
    """The inputs that linear layers save of one norm's output. Autocast and LoRA cast it separately per layer."""
    if batch.lora:
        return linears * shape.hidden * (4 if batch.precision == "float32" else 2) if trained else 0
    if batch.precision == "mixed":
        return linears * shape.hidden * 2
    return shape.hidden * (4 if batch.precision == "float32" else 2)


def _attention_activations(shape: ModelShape, batch: MicroBatch) -> float:
    size = 4 if batch.precision == "float32" else 2
    saved = _linear_inputs(shape, batch, 1 if shape.family.fused else 3, trained=True)
    # Query, key, value and result; with a mask, grouped keys and values are expanded to all heads.
    key_size = shape.query_size if batch.masked else shape.kv_size
    saved += 2 * (shape.query_size + key_size) * size + (shape.query_size * size if batch.lora else 0)
    if batch.attention != "eager":
        # With a mask SDPA saves a bias of the model's dtype per layer, and one float32 per head and token.
        return saved + 4 * shape.heads + (batch.length * size if batch.attention == "sdpa" and batch.masked else 0)
    if shape.model_type == "gpt_oss" and batch.precision == "bfloat16":  # softmax in bfloat16
        return saved + shape.heads * batch.length * 2
    # softmax in float32, then a cast
    return saved + shape.heads * batch.length * (4 if batch.precision == "float32" else 6)


def _mlp_activations(shape: ModelShape, batch: MicroBatch) -> float:
    size, inner = (4 if batch.precision == "float32" else 2), shape.dense_intermediate
    saved = _linear_inputs(shape, batch, 1 if shape.family.fused else 2, trained=batch.lora == "all")
    wide = 4 if batch.quantized in FOUR_BIT_TYPES else size
    if shape.model_type == "gpt2":  # the tanh approximation of GELU saves its cube, scaled sum, tanh and product
        return saved + 8 * inner * wide
    # Gate, SiLU of it (not with Liger), up, and their product, which a frozen down projection does not save.
    return saved + (3 - batch.liger) * inner * wide + (0 if batch.lora == "attention" else inner * size)


def _expert_activations(shape: ModelShape, batch: MicroBatch) -> float:
    """Each token passes through several experts. transformers 5 does not cast their float32 weights."""
    size = 2 if batch.precision == "bfloat16" else 4
    inner, width = shape.intermediate, shape.hidden
    # Measured: gpt-oss clamps, scales and shifts its gate, which saves three tensors more than SiLU.
    per_expert = (7 * inner + 2 * width) if shape.model_type == "gpt_oss" else (4 * inner + 2 * width)
    routed = shape.experts_per_token * per_expert * size + _linear_inputs(shape, batch, 1, trained=True)
    routed += 40 * shape.experts_per_token  # routing indices in int64
    return routed + 4 * shape.shared_intermediate * size


def stored_activations(shape: ModelShape, batch: MicroBatch) -> int:
    """Return the bytes saved from the forward to the backward pass."""
    narrow = batch.precision == "bfloat16" and not batch.quantized
    last_norm = shape.hidden * (6 if narrow and not shape.family.float_norm else 8)
    if batch.checkpointing:  # only the input of each layer
        return int(batch.tokens * (last_norm + shape.layers * shape.hidden * (2 if narrow else 4)))
    dense = shape.dense_layers * layer_activations(shape, batch, experts=False)
    routed = shape.expert_layers * layer_activations(shape, batch, experts=True) if shape.experts else 0
    return int(batch.tokens * (last_norm + dense + routed))


def temporary_activations(shape: ModelShape, batch: MicroBatch) -> int:
    """Return the bytes that exist within one layer: its recomputed activations, and the scores of eager attention."""
    layer = layer_activations(shape, batch, experts=bool(shape.experts))
    scores = batch.sequences * shape.heads * batch.length**2 * (8 if batch.precision == "float32" else 6)
    recomputed = batch.tokens * layer if batch.checkpointing else 0
    return int(recomputed + (scores if batch.attention == "eager" else 0))


def adapter_input(shape: ModelShape, batch: MicroBatch) -> int:
    """Return the bytes of the widest input of an adapter, in float32 and back in 16 bits, while it is computed.

    PEFT casts it to the type of the adapter's weights, float32 (_cast_input_dtype), and autocast casts it back.
    """
    if not batch.lora or batch.precision == "float32" or batch.quantized:
        return 0
    inner = shape.dense_intermediate if batch.lora == "all" and not shape.experts else 0
    return int(batch.tokens * max(inner, shape.hidden) * (4 + 2))


def inference_activations(shape: ModelShape, batch: MicroBatch) -> int:
    """Return the bytes at the widest point of a layer without gradients: its inputs, gate, up and product."""
    size = 4 if batch.precision == "float32" or batch.quantized in FOUR_BIT_TYPES else 2
    inner = shape.experts_per_token * shape.intermediate if shape.experts else shape.dense_intermediate
    scores = batch.sequences * shape.heads * batch.length**2 * (size + 4) if batch.attention == "eager" else 0
    return int(batch.tokens * (3 * inner + 4 * shape.hidden) * size + scores)


def logits_bytes(shape: ModelShape, batch: MicroBatch, method: str, *, backward: bool) -> int:
    """Return the bytes of the completions' logits.

    `method`: held (all logits of the micro-batch), liger (one sequence at a time) or fused (TRL's tiled head).
    """
    if method == "fused":  # tiles of a few MiB; the gradients of hidden states and head are float32
        return (batch.sequences * batch.completion + shape.vocab * backward) * shape.hidden * 4
    # Per logit: a float32 copy (accelerate converts autocast's output), the same divided by the temperature, and one
    # more with gradients; without gradients the bfloat16 logits are still allocated next to the two.
    per_logit = 12 if backward else 10
    sequences = 1 if method == "liger" else batch.sequences
    return sequences * (batch.completion + 1) * shape.vocab * per_logit


def kv_cache_bytes(shape: ModelShape, sequences: int, length: int, size: int) -> int:
    """Return the bytes of the keys and values; a layer with a sliding window caches only the window."""
    full = (shape.layers - shape.sliding_layers) * length
    sliding = shape.sliding_layers * min(length, shape.sliding_window or length)
    return int(sequences * 2 * shape.kv_size * size * (full + sliding))


def weight_bytes(shape: ModelShape, size: float, quantization: str = "none", *, double: bool = True) -> int:
    """Return the bytes of the weights as the trainer loads them."""
    counts = count_parameters(shape)
    total = sum(counts.values())
    if quantization == "none":
        return int(total * size)
    linear = counts["attention"] + counts["mlp"]
    if shape.model_type != "gpt_oss":  # its experts are no nn.Linear, so bitsandbytes does not quantize them
        linear += counts["experts"]
    per_weight = 1.0 if quantization == "int8" else FOUR_BIT_DOUBLE_BYTES if double else FOUR_BIT_BYTES
    other = 2 if shape.experts else 4  # PEFT's prepare_model_for_kbit_training casts the other weights to float32
    return int(linear * per_weight + (total - linear) * other)


def reward_model_bytes(shape: ModelShape) -> int:
    """Return the bytes of a reward model: its head has one output instead of the vocabulary."""
    counts = count_parameters(shape)
    return (sum(counts.values()) - counts["head"] + shape.hidden) * DTYPE_BYTES.get(shape.dtype, 4)


def mxfp4_bytes(shape: ModelShape) -> int:
    """Return the bytes of an MXFP4 checkpoint in vLLM: expert matrices in four bits, the rest bfloat16."""
    experts = shape.expert_layers * 3 * shape.experts * shape.hidden * shape.intermediate
    return int(experts * MXFP4_BYTES + (sum(count_parameters(shape).values()) - experts) * 2)


def lora_parameters(shape: ModelShape, rank: int, targets: list[str], expert_parameters: list[str]) -> int:
    """Return the adapter's parameters: rank x (inputs + outputs) of every target matrix, once per expert."""
    width, inner, query, kv = shape.hidden, shape.dense_intermediate, shape.query_size, shape.kv_size
    attention = {
        "q_proj": width + query, "k_proj": width + kv, "v_proj": width + kv, "o_proj": query + width,
        "qkv_proj": width + query + 2 * kv, "c_attn": 4 * width,
    }  # fmt: skip
    mlp = {"gate_proj": width + inner, "up_proj": width + inner, "down_proj": inner + width,
           "gate_up_proj": width + 2 * inner}  # fmt: skip
    if "all-linear" in targets:
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    total = shape.layers * sum(attention.get(name, 0) for name in targets)
    total += shape.dense_layers * sum(mlp.get(name, 0) for name in targets)
    for name in expert_parameters:
        inputs, outputs = (width, 2 * shape.intermediate) if "gate_up" in name else (shape.intermediate, width)
        total += shape.experts * (inputs + outputs)
    return rank * total


def expert_deltas(shape: ModelShape, expert_parameters: list[str], size: int) -> int:
    """Return the bytes of B @ A, which PEFT's target_parameters materialises at the full size of each parameter."""
    matrix = shape.experts * shape.hidden * shape.intermediate
    return sum(matrix * (2 if "gate_up" in name else 1) * size for name in expert_parameters)


# Optimizer states per trained weight, by a part of the optimizer's name (first match). AdamW and its variants have
# two. Sources: torch.optim 2.13, bitsandbytes.optim, and the papers of the others.
OPTIMIZER_STATES = {
    "lion": 1, "ademamix": 3, "grokadamw": 3, "rmsprop": 1, "adagrad": 1, "schedule_free_sgd": 1, "sgd": 0, "lomo": 0,
    "adafactor": 0.02,  # only row and column statistics
}  # fmt: skip


def optimizer_bytes(name: str, trained: int, size: int) -> tuple[int, int, int]:
    """Return (on the GPU, on the host, temporary during a step). torch's optimizers use the dtype of the weights."""
    states = next((count for part, count in OPTIMIZER_STATES.items() if part in name), 2)
    if "8bit" in name:
        per_state = 1 + 4 / 256  # one float32 scale per 256 numbers
    elif "4bit" in name:
        per_state = 0.5 + 4 / 128  # one float32 scale per 128 numbers (torchao)
    elif "bnb" in name or "32bit" in name or name.startswith("paged") or name == "ademamix":
        per_state = 4  # bitsandbytes uses float32
    else:
        per_state = size
    state = int(trained * states * per_state)
    temporary = trained * size if name in ("adamw_torch", "adamw_hf") else 0  # foreach: one denominator per weight
    return (0, state, temporary) if name.startswith("paged") else (state, 0, temporary)
