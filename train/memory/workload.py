"""Resolve the sizes that a run's settings imply: lengths, batch sizes, data types and trained parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from checks.batches import completions_per_generation, vllm_max_length
from checks.dtypes import choose_dtype
from checks.engines import quantization_type, sampling_engine
from checks.versions import at_least
from data.example_lengths import max_length
from data.lengths import choose_bounds
from memory.formulas import DTYPE_BYTES, MicroBatch, lora_parameters
from memory.shape import ModelShape, count_parameters

DEFAULT_PROMPT_TOKENS = 512  # if neither data nor settings give the length of prompts
SYMBOL_PROMPT_TOKENS = 64  # for sort and tes, whose prompts consist of symbols
MLP_TARGETS = {"gate_proj", "up_proj", "down_proj"}


@dataclass(frozen=True)
class Workload:
    """What one process computes in a step, resolved from model, settings and machine. `notes` lists assumptions."""

    shape: ModelShape
    settings: Mapping[str, Any]
    gpus: int
    prompt: int  # tokens
    completion: int  # tokens
    dtype: str  # of the weights
    precision: str  # of the computation: float32, bfloat16 or mixed
    attention: str
    logits: str  # how the loss computes logits: held, liger or fused
    notes: tuple[str, ...] = ()
    reward_models: tuple[ModelShape, ...] = ()

    @property
    def device_map_gpus(self) -> int:
        """Return the GPUs over which one process distributes the layers."""
        return self.gpus if self.settings["device_map"] else 1

    @property
    def world_size(self) -> int:
        """Return the number of processes."""
        return 1 if self.settings["device_map"] else self.gpus

    @property
    def sharded(self) -> bool:
        """Return whether FSDP shards the model."""
        return bool(self.settings["fsdp"]) and self.world_size > 1

    @property
    def shards(self) -> int:
        """Return the GPUs that share one copy of the weights."""
        return self.world_size if self.sharded else self.device_map_gpus

    @property
    def of_examples(self) -> bool:
        """Return whether examples are trained on (SFT and DPO), and no completions are sampled."""
        return bool(self.settings["trainer"] != "grpo")

    @property
    def sequences_per_example(self) -> int:
        """Return the sequences of a forward pass per example: DPO computes both completions of a pair at once."""
        return 2 if self.settings["trainer"] == "dpo" else 1

    @property
    def completions(self) -> int:
        """Return the completions, or sequences of examples, of one process per step."""
        if self.of_examples:
            return self.micro_batch * int(self.settings["gradient_accumulation_steps"])
        total = self.settings["prompts_per_step"] * self.settings["num_generations"]
        return max(1, math.ceil(total / self.world_size))

    @property
    def sampled(self) -> int:
        """Return the completions of one process that are sampled at once."""
        return max(1, math.ceil(completions_per_generation(self.settings, self.world_size) / self.world_size))

    @property
    def micro_batch(self) -> int:
        """Return the completions, or sequences of examples, of one forward and backward pass."""
        if self.of_examples:
            return int(self.settings["per_device_train_batch_size"]) * self.sequences_per_example
        return min(self.settings["per_device_train_batch_size"] or self.completions, self.completions)

    @property
    def lora(self) -> bool:
        """Return whether an adapter is trained instead of all weights."""
        return bool(self.settings["r"] > 0)

    @property
    def quantization(self) -> str:
        """Return the bitsandbytes type of the weights: that of the checkpoint takes precedence over the setting."""
        return str(self.shape.bitsandbytes_type or quantization_type(self.settings))

    @property
    def double_quantization(self) -> bool:
        """Return whether the scales are quantized as well."""
        if self.shape.bitsandbytes_type:
            return self.shape.double_quantization
        return bool(self.settings["bnb_4bit_use_double_quant"])

    @property
    def prepared_quantization(self) -> str:
        """Return the bitsandbytes type if PEFT prepares the model, which it does not for a mixture of experts."""
        return "" if self.quantization == "none" or self.shape.experts else self.quantization

    @property
    def dtype_bytes(self) -> int:
        """Return the bytes of one weight that is not quantized."""
        return DTYPE_BYTES[self.dtype]

    @property
    def trained_bytes(self) -> int:
        """Return the bytes of one trained weight; adapters are float32."""
        return 4 if self.lora else self.dtype_bytes

    @property
    def gathered_bytes(self) -> int:
        """Return the bytes of one weight that FSDP gathers."""
        return 2 if self.precision == "bfloat16" else 4

    @cached_property  # a search for remedies reads it 50 times for each plan
    def parameters(self) -> int:
        """Return the parameters of the model."""
        return sum(count_parameters(self.shape).values())

    @cached_property
    def trained_parameters(self) -> int:
        """Return the parameters that the optimizer updates."""
        if not self.lora:
            return self.parameters
        rank, modules, experts = (self.settings[name] for name in ("r", "target_modules", "target_parameters"))
        return lora_parameters(self.shape, rank, list(modules), list(experts))

    def model_pass(self, *, backward: bool) -> MicroBatch:
        """Return the micro-batch of the loss, or of the log-probabilities that are computed without gradients."""
        precision = self.precision
        if backward and precision == "mixed" and self.logits == "liger":
            # TRL's Liger loss calls the model outside of accelerate's autocast wrapper, so float32 weights compute in
            # float32 (TRL 0.23.1, _get_last_hidden_state).
            precision = "float32"
        targets = set(self.settings["target_modules"])
        lora = ("all" if "all-linear" in targets or targets & MLP_TARGETS else "attention") if self.lora else ""
        return MicroBatch(
            self.micro_batch, self.prompt, self.completion, precision, self.attention,
            checkpointing=bool(self.settings["gradient_checkpointing"]), lora=lora,
            liger=self.settings["liger_kernels"] == "on",  # "auto" is resolved when the model is loaded
            quantized=self.prepared_quantization, masked=self.has_mask(),
        )  # fmt: skip

    def has_mask(self) -> bool:
        """Return whether attention gets a mask: patches/unpadded.py removes it for SDPA where it can."""
        return self.attention != "sdpa" or any(
            (
                not self.settings["patches"],
                self.settings["torch_compile"],
                self.settings["trust_remote_code"],
                self.shape.sliding_layers,
            )
        )


def resolve_workload(
    shape: ModelShape,
    settings: Mapping[str, Any],
    machine: Mapping[str, Any],
    *,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    trl: str = "",
    attention: str = "",
    reward_models: tuple[ModelShape, ...] = (),
) -> Workload:
    """Return the workload of one process, with notes on every assumption.

    The arguments are the same as those of `plan.plan`.
    """
    gpus = max(1, int(machine.get("gpus") or 1))
    lengths = resolve_lengths if settings["trainer"] == "grpo" else resolve_example_length
    prompt, completion, length_notes = lengths(shape, settings, prompt_tokens, completion_tokens)
    compute, held, dtype_notes = resolve_dtypes(shape, settings, machine)
    sharded = settings["fsdp"] and not settings["device_map"] and gpus > 1
    if held != "float32" or compute == "float32":
        precision = "bfloat16" if held == "float16" else held
    else:
        precision = "bfloat16" if sharded else "mixed"  # FSDP gathers the layers in bfloat16
    logits = logits_method(settings, trl)
    quantized_twice = bool(shape.bitsandbytes_type) and quantization_type(settings) != "none"
    notes = [
        *shape.notes,
        *length_notes,
        *(
            ["the checkpoint is already quantized by bitsandbytes; load_in_4bit and load_in_8bit have no effect"]
            * quantized_twice
        ),
        *dtype_notes,
        *_lora_notes(shape, settings),
    ]
    if not trl and logits != "fused":
        notes.append("unknown TRL version: estimated as TRL before 1.15, which keeps all logits; --python selects it")
    if (shape.bitsandbytes_type or quantization_type(settings)) != "none" and shape.model_type == "gpt_oss":
        notes.append("bitsandbytes quantizes linear layers only: gpt-oss's experts stay in bfloat16")
    if sampling_engine(settings) == "transformers-paged":
        notes.append("transformers' paged cache may need more: it allocates the memory that is free when it starts")
    # Models with attention sinks need eager or flex attention; eager needs more memory.
    chosen = settings["attn_implementation"]
    if chosen == "auto":
        chosen = attention or ("eager" if shape.model_type == "gpt_oss" else "sdpa")
    return Workload(
        shape, settings, gpus, prompt, completion, held, precision, str(chosen), logits, tuple(notes), reward_models
    )  # fmt: skip


def resolve_dtypes(
    shape: ModelShape, settings: Mapping[str, Any], machine: Mapping[str, Any]
) -> tuple[str, str, list[str]]:
    """Return (dtype of the computation, dtype of the weights, notes), as the trainer chooses them."""
    if settings["task"] != "dataset":
        return "float32", "float32", []  # a model with random weights
    # On a GPU with bfloat16 TRL turns autocast on, and float32 weights compute as 16-bit copies.
    gpu = "bfloat16" if machine.get("bfloat16", True) else "float16"
    return choose_dtype(dict(settings), shape.quant_method, fast_dtype="" if settings["use_cpu"] else gpu)


def logits_method(settings: Mapping[str, Any], trl: str) -> str:
    """Return how the loss computes the logits: held, liger or fused."""
    # TRL computes log-probabilities in tiles of the head: 1.14 with use_liger_kernel (_chunked_logps), 1.15 and later
    # always (add_fused_lm_head).
    if at_least(trl, (1, 15)) or (settings["use_liger_kernel"] and at_least(trl, (1, 14))):
        return "fused"
    if settings["trainer"] == "sft":
        # From 1.7 on chunked_nll is the default loss; transformers' Liger fuses the head into the loss.
        chunked = settings["loss_type"] == "chunked_nll" or (not settings["loss_type"] and at_least(trl, (1, 7)))
        return "fused" if chunked or settings["use_liger_kernel"] else "held"
    return "liger" if settings["use_liger_kernel"] else "held"


def resolve_lengths(
    shape: ModelShape, settings: Mapping[str, Any], prompt_tokens: int, completion_tokens: int
) -> tuple[int, int, list[str]]:
    """Return (prompt tokens, completion tokens, notes on lengths that neither data nor settings give)."""
    notes: list[str] = []
    if settings["task"] != "dataset":
        total, bound, default = 0, 0, SYMBOL_PROMPT_TOKENS
    else:
        (total, bound), default = choose_bounds(dict(settings), shape.max_positions), DEFAULT_PROMPT_TOKENS
    prompt = prompt_tokens
    completion = min(filter(None, (completion_tokens, settings["max_completion_length"])), default=0)
    if not prompt and settings["max_prompt_length"]:
        prompt = bound  # max_seq_length may allow less than max_prompt_length
    elif not prompt:
        prompt = bound if settings["max_seq_length"] and completion else min(default, bound or default)
        prompt = min(prompt, total // 2) if total and not completion else prompt
        notes.append(f"assumed prompt length: {prompt} tokens; --set max_prompt_length=N sets it")
    if not completion:
        completion = max(1, total - prompt)
        limit = "max_seq_length" if settings["max_seq_length"] else f"the model's context of {total:,} tokens"
        notes.append(f"assumed completion length: {completion} tokens, the rest of {limit}")
    if settings["vllm_max_model_length"] and not prompt_tokens:  # prompts are at most the rest of the model length
        prompt = max(1, min(prompt, settings["vllm_max_model_length"] - completion))
    vllm_max_length(settings, prompt, completion)
    return prompt, completion, notes


def resolve_example_length(
    shape: ModelShape, settings: Mapping[str, Any], longest: int, _: int
) -> tuple[int, int, list[str]]:
    """Return (0, tokens of the longest example, notes): the loss reads the logits of all tokens."""
    bound = max_length(dict(settings), shape.max_positions)
    packed = bool(settings.get("packing")) and bound
    if packed or (longest and not bound):
        return 0, packed or longest, []
    if longest:
        return 0, min(longest, bound), []
    if settings["task"] != "dataset":
        return 0, SYMBOL_PROMPT_TOKENS, []
    length = bound or DEFAULT_PROMPT_TOKENS
    return 0, length, [f"assumed example length: {length} tokens; --set max_length=N sets it"]


def _lora_notes(shape: ModelShape, settings: Mapping[str, Any]) -> list[str]:
    """Note the LoRA targets whose size is unknown for this model."""
    rank = settings["r"]
    if not rank:
        return []
    unknown = [name for name in settings["target_modules"] if not lora_parameters(shape, rank, [name], [])]
    unknown += [name for name in settings["target_parameters"] if not lora_parameters(shape, rank, [], [name])]
    return [f"LoRA on {', '.join(unknown)} is not counted: unknown target of this model"] if unknown else []
