"""Formulas of the memory plan, in bytes: what one part of a GRPO step holds. Standard library only, no settings.

Activations were calibrated by summing the storages that autograd saves (torch 2.8 and 2.13, transformers 4.57 and
5.17; tests/train/test_train_memory_real.py does it again). H hidden, I inner, A all heads' queries, T tokens of a
sequence. A mode is float32, bfloat16 (float16 counts the same), or mixed: float32 weights under autocast.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.shape import Shape, count_parameters

GIB = 1 << 30
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
MXFP4_BYTES = 4.25 / 8  # 32 four-bit numbers share one byte of scale (OCP MX specification)
# NF4 and FP4: half a byte, and a float32 scale for 64 numbers; quantised twice that scale is one byte, and 256 of
# those share a float32 (bitsandbytes, blocksize 64 and 256).
FOUR_BIT, FOUR_BIT_DOUBLE = 0.5 + 4 / 64, 0.5 + 1 / 64 + 4 / (64 * 256)
FOUR_BITS = ("nf4", "fp4")  # bitsandbytes' layers answer in the type that they were given: float32, by PEFT's norms
CONTEXT = int(0.6 * GIB)  # CUDA context and cuBLAS workspace of one process
NCCL = int(0.7 * GIB)  # its buffers, per process
VLLM_OUTSIDE = int(1.0 * GIB)  # what vLLM's process needs beside its share: graphs, workspaces
VLLM_ASLEEP = int(1.5 * GIB)  # what stays of it at sleep level 1: graphs and buffers
VLLM_INSIDE = int(2.0 * GIB)  # of its share, neither weights nor cache: the profiled forward pass
FRAGMENTS = 0.03  # of what comes and goes: torch's allocator keeps blocks that no tensor fits


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass: how many sequences, how long, and how it is computed."""

    sequences: int
    prompt: int
    completion: int
    mode: str  # float32, bfloat16, mixed
    attention: str  # eager keeps the scores; every other one does not
    checkpointing: bool = False
    lora: str = ""  # "": all weights are trained; attention: no LoRA in the MLP; all
    liger: bool = False  # its layers by Liger's kernels, which compute again what they can
    quantized: str = ""  # nf4, fp4 or int8, prepared by PEFT: what is between the layers is float32 then
    masked: bool = True  # SDPA without a mask takes grouped keys and values as they are

    @property
    def length(self) -> int:
        """Of a sequence, in tokens."""
        return self.prompt + self.completion

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return self.sequences * self.length


def layer_activations(shape: Shape, step: Pass, *, experts: bool) -> float:
    """Bytes that one layer saves for backward, per token."""
    return _norms(shape, step) + _attention(shape, step) + (_experts(shape, step) if experts else _mlp(shape, step))


def _norms(shape: Shape, step: Pass) -> float:
    """RMSNorm keeps its input in float32 and, if its weight is trained, the normalised one in the model's dtype."""
    family, wide = shape.family, step.mode in ("float32", "mixed")
    normalised = 4 if wide or family.float_norm else 2
    if step.lora and not family.float_norm:
        normalised = 0  # a frozen weight needs no gradient
    if step.liger:  # its input as it came, and a number a token
        return family.norms * shape.hidden * (4 if wide else 2)
    kept = family.norms * shape.hidden * (4 + normalised)
    if family.qk_norm:  # its input is what a linear layer gave: bfloat16 under autocast
        kept += (shape.query_size + shape.kv_size) * (4 + (0 if step.lora else 4 if step.mode == "float32" else 2))
    return kept


def _inputs(shape: Shape, step: Pass, linears: int, *, trained: bool) -> float:
    """What the linear layers keep of one norm's output. Autocast and LoRA each cast it anew for every layer."""
    if step.lora:
        return linears * shape.hidden * (4 if step.mode == "float32" else 2) if trained else 0
    if step.mode == "mixed":
        return linears * shape.hidden * 2
    return shape.hidden * (4 if step.mode == "float32" else 2)


def _attention(shape: Shape, step: Pass) -> float:
    size = 4 if step.mode == "float32" else 2
    kept = _inputs(shape, step, 1 if shape.family.fused else 3, trained=True)
    # Query, key, value and result; grouped keys and values are expanded to all heads where there is a mask.
    grouped = shape.query_size if step.masked else shape.kv_size
    kept += 2 * (shape.query_size + grouped) * size + (shape.query_size * size if step.lora else 0)
    if step.attention != "eager":
        # SDPA makes the mask a bias of the model's dtype, layer by layer, and keeps a float32 a head and token.
        return kept + 4 * shape.heads + (step.length * size if step.attention == "sdpa" and step.masked else 0)
    if shape.model_type == "gpt_oss" and step.mode == "bfloat16":  # its softmax stays in bfloat16
        return kept + shape.heads * step.length * 2
    return kept + shape.heads * step.length * (4 if step.mode == "float32" else 6)  # softmax in float32, then cast


def _mlp(shape: Shape, step: Pass) -> float:
    size, inner = (4 if step.mode == "float32" else 2), shape.dense_intermediate
    kept = _inputs(shape, step, 1 if shape.family.fused else 2, trained=step.lora == "all")
    wide = 4 if step.quantized in FOUR_BITS else size
    if shape.model_type == "gpt2":  # GELU from its parts: cube, scaled sum, tanh, product
        return kept + 8 * inner * wide
    # Gate, its SiLU (not by Liger), up, and their product, which nothing keeps if the last matrix is frozen.
    return kept + (3 - step.liger) * inner * wide + (0 if step.lora == "attention" else inner * size)


def _experts(shape: Shape, step: Pass) -> float:
    """Each token goes through several experts; their float32 weights are not cast by transformers 5."""
    size = 2 if step.mode == "bfloat16" else 4
    inner, width = shape.intermediate, shape.hidden
    # gpt-oss clamps, scales and shifts: nine tensors where SiLU leaves four (measured).
    each = (7 * inner + 2 * width) if shape.model_type == "gpt_oss" else (4 * inner + 2 * width)
    routed = shape.experts_per_token * each * size + _inputs(shape, step, 1, trained=True)
    routed += 40 * shape.experts_per_token  # who goes where, in int64
    return routed + 4 * shape.shared_intermediate * size


def stored_activations(shape: Shape, step: Pass) -> int:
    """Bytes kept from the forward pass to the backward pass."""
    narrow = step.mode == "bfloat16" and not step.quantized
    ends = shape.hidden * (6 if narrow and not shape.family.float_norm else 8)  # the last norm
    if step.checkpointing:  # of each layer its input alone
        return int(step.tokens * (ends + shape.layers * shape.hidden * (2 if narrow else 4)))
    dense = shape.dense_layers * layer_activations(shape, step, experts=False)
    routed = shape.expert_layers * layer_activations(shape, step, experts=True) if shape.experts else 0
    return int(step.tokens * (ends + dense + routed))


def passing_activations(shape: Shape, step: Pass) -> int:
    """Bytes that live within a layer: all of it again with checkpointing, and eager attention's scores."""
    layer = layer_activations(shape, step, experts=bool(shape.experts))
    scores = step.sequences * shape.heads * step.length**2 * (8 if step.mode == "float32" else 6)
    return int((step.tokens * layer if step.checkpointing else 0) + (scores if step.attention == "eager" else 0))


def forward_only(shape: Shape, step: Pass) -> int:
    """Bytes at the widest point of a layer without gradients: its inputs, gate, up and product."""
    size = 4 if step.mode == "float32" or step.quantized in FOUR_BITS else 2
    inner = shape.experts_per_token * shape.intermediate if shape.experts else shape.dense_intermediate
    scores = step.sequences * shape.heads * step.length**2 * (size + 4) if step.attention == "eager" else 0
    return int(step.tokens * (3 * inner + 4 * shape.hidden) * size + scores)


def logits(shape: Shape, step: Pass, how: str, *, backward: bool) -> int:
    """Logits of the completions. `how`: held, liger (a sequence at a time), fused (TRL's own head, in tiles)."""
    if how == "fused":  # tiles of a few MiB; the gradients of the hidden states and the head's in float32
        return (step.sequences * step.completion + shape.vocab * backward) * shape.hidden * 4
    # A copy in float32 (accelerate converts what autocast gives), the same divided by the temperature, and with
    # gradients one more; without them the bfloat16 ones live beside two.
    each = 12 if backward else 10
    sequences = 1 if how == "liger" else step.sequences
    return sequences * (step.completion + 1) * shape.vocab * each


def kv_cache(shape: Shape, sequences: int, length: int, size: int) -> int:
    """Keys and values of sequences; a layer with a sliding window keeps no more than that."""
    full = (shape.layers - shape.window_layers) * length
    slid = shape.window_layers * min(length, shape.window or length)
    return int(sequences * 2 * shape.kv_size * size * (full + slid))


def weight_bytes(shape: Shape, size: float, quantization: str = "none", *, double: bool = True) -> int:
    """The weights as the trainer holds them."""
    parts = count_parameters(shape)
    total = sum(parts.values())
    if quantization == "none":
        return int(total * size)
    linear = parts["attention"] + parts["mlp"]
    if shape.model_type != "gpt_oss":  # whose experts are no nn.Linear: bitsandbytes leaves them as they are
        linear += parts["experts"]
    each = 1.0 if quantization == "int8" else FOUR_BIT_DOUBLE if double else FOUR_BIT
    rest = 2 if shape.experts else 4  # PEFT's prepare_model_for_kbit_training makes float32 of it
    return int(linear * each + (total - linear) * rest)


def mxfp4_bytes(shape: Shape) -> int:
    """An MXFP4 checkpoint on disk and in vLLM: the experts' matrices in four bits, the rest in bfloat16."""
    quantised = shape.expert_layers * 3 * shape.experts * shape.hidden * shape.intermediate
    return int(quantised * MXFP4_BYTES + (sum(count_parameters(shape).values()) - quantised) * 2)


def lora_parameters(shape: Shape, rank: int, targets: list[str], expert_parameters: list[str]) -> int:
    """Parameters of the adapter: rank x (inputs + outputs) of every matrix; an expert each has its own."""
    width, inner, query, kv = shape.hidden, shape.dense_intermediate, shape.query_size, shape.kv_size
    sizes = {
        "q_proj": width + query, "k_proj": width + kv, "v_proj": width + kv, "o_proj": query + width,
        "qkv_proj": width + query + 2 * kv, "c_attn": 4 * width,
    }  # fmt: skip
    in_mlp = {"gate_proj": width + inner, "up_proj": width + inner, "down_proj": inner + width,
              "gate_up_proj": width + 2 * inner}  # fmt: skip
    if "all-linear" in targets:
        targets = [*list(sizes)[:4], "gate_proj", "up_proj", "down_proj"]
    each = shape.layers * sum(sizes.get(name, 0) for name in targets)
    each += shape.dense_layers * sum(in_mlp.get(name, 0) for name in targets)
    for name in expert_parameters:
        outputs = 2 * shape.intermediate if "gate_up" in name else width
        each += shape.experts * ((width if "gate_up" in name else shape.intermediate) + outputs)
    return rank * each


def expert_deltas(shape: Shape, expert_parameters: list[str], size: int) -> int:
    """PEFT's target_parameters make B @ A as large as the parameter itself, whenever the layer runs."""
    one = shape.experts * shape.hidden * shape.intermediate
    return sum(one * (2 if "gate_up" in name else 1) * size for name in expert_parameters)


# States a trained weight, by a part of the optimizer's name, the first that matches; AdamW and its kind have two.
# torch.optim (2.13), bitsandbytes.optim, and the papers of the rest.
STATES = {
    "lion": 1, "ademamix": 3, "grokadamw": 3, "rmsprop": 1, "adagrad": 1, "schedule_free_sgd": 1, "sgd": 0, "lomo": 0,
    "adafactor": 0.02,  # rows and columns alone
}  # fmt: skip


def optimizer_bytes(name: str, trained: int, size: int) -> tuple[int, int, int]:
    """(on the GPU, on the host, passing while it steps). torch's optimizers keep states in the weights' dtype."""
    states = next((count for part, count in STATES.items() if part in name), 2)
    if "8bit" in name:
        each = 1 + 4 / 256  # a float32 scale for 256 numbers
    elif "4bit" in name:
        each = 0.5 + 4 / 128  # and for 128 (torchao)
    elif "bnb" in name or "32bit" in name or name.startswith("paged") or name == "ademamix":
        each = 4  # bitsandbytes keeps float32
    else:
        each = size
    state = int(trained * states * each)
    passing = trained * size if name in ("adamw_torch", "adamw_hf") else 0  # foreach: one denominator a parameter
    return (0, state, passing) if name.startswith("paged") else (state, 0, passing)
