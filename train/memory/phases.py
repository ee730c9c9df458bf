"""Combine the formulas of memory/formulas.py into the memory that each phase of a step needs.

Phases: load, generate, score (log-probabilities without gradients), update (forward and backward pass) and step (the
optimizer's). The peak is the maximum over the phases, since each phase reuses the memory that earlier ones freed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from checks.batches import updates_per_generation
from checks.engines import sampling_engine
from memory import formulas
from memory.formulas import GIB, MicroBatch
from memory.shape import gathered_sizes
from memory.workload import Workload

MAX_VLLM_SHARE = 0.95
MAX_USE = 0.99  # of the free memory; a fuller plan does not count as fitting, since the formulas have a few % error
PHASES = ("load", "generate", "score", "update", "step")
SLEEP_PHASES = ("score", "update", "step")  # vLLM is asleep in these if vllm_enable_sleep_mode is on
ALLOCATED_LATER = ("optimizer", "DDP buckets")  # allocated when the training starts, after the load phase


class Part(NamedTuple):
    """One row of the plan."""

    name: str
    size: int  # bytes
    reason: str


@dataclass(frozen=True)
class VllmShare:
    """The share of the GPU's memory that vLLM gets, in bytes, and notes if it is too small."""

    share: float = 0.0
    size: int = 0
    minimum: int = 0  # bytes for the weights and the KV cache of one group
    notes: tuple[str, ...] = ()


class MemoryPlan:
    """The memory of one process and its GPU. `machine` has the keys memory and free, in bytes."""

    def __init__(self, workload: Workload, machine: Mapping[str, Any]) -> None:
        self.work, self.machine = workload, machine
        self.shape, self.settings = workload.shape, workload.settings
        self.memory = machine.get("memory") or 0
        self.free = machine.get("free") or self.memory
        self.colocated = sampling_engine(self.settings) == "vllm-colocate"
        self.ddp = workload.world_size > 1 and not workload.sharded

    @property
    def has_reference_copy(self) -> bool:
        """Whether the reference policy is a second model; that of an adapter is the model without it."""
        precomputed = self.settings.get("precompute_ref_log_probs")
        return bool(self.settings["beta"] > 0 and not self.work.lora and not precomputed)

    def persistent_parts(self) -> list[Part]:
        """Return what is allocated from the first step to the last."""
        work, settings, shape = self.work, self.settings, self.shape
        total = formulas.weight_bytes(
            shape, work.dtype_bytes, work.quantization, double=work.double_quantization
        )  # fmt: skip
        weights = total // work.shards
        other = "float32" if work.prepared_quantization else work.dtype
        dtype = work.dtype if work.quantization == "none" else f"{work.quantization}, other weights {other}"
        reason = f"{work.parameters:,} parameters in {dtype}"
        reason += f", sharded over {work.shards} GPUs" if work.sharded else ""
        if shape.quant_method == "mxfp4" and work.quantization == "none":
            reason += ", dequantized from MXFP4"
        parts = [Part("weights", weights, reason)]
        for reward in work.reward_models:
            size = formulas.reward_model_bytes(reward)
            parts.append(Part("reward model", size, f"{reward.model_type}, {reward.dtype or 'float32'}"))
        if self.has_reference_copy:
            parts.append(Part("reference model", weights, "beta > 0: a copy of the initial policy"))
        if work.lora:
            size = work.trained_parameters * 4 // (work.shards if work.sharded else 1)
            reason = f"{work.trained_parameters:,} parameters, rank {settings['r']}, float32"
            parts.append(Part("LoRA", size, reason))
        if sampling_engine(settings) == "transformers-graphs":
            size = 2 if work.precision == "mixed" else work.dtype_bytes
            cache = formulas.kv_cache_bytes(shape, work.sampled, work.prompt + work.completion, size)
            parts.append(Part("KV cache", cache, f"static for the CUDA graph: {work.sampled} completions"))
            if work.precision == "mixed":
                parts.append(Part("sampling copy", work.parameters * 2, "bfloat16 copy of the float32 weights"))
        if self.ddp:
            parts.append(Part("DDP buckets", self.gradient_bytes(), "contain the gradients, allocated in all phases"))
        on_gpu, _, _ = self.optimizer_bytes()
        reason = f"{settings['optim']} over {work.trained_parameters:,} parameters"
        parts.append(Part("optimizer", on_gpu, reason))
        return parts

    def optimizer_bytes(self) -> tuple[int, int, int]:
        """Return (on the GPU, on the host, temporary during a step)."""
        trained = self.work.trained_parameters // self.work.shards
        return formulas.optimizer_bytes(self.settings["optim"], trained, self.work.trained_bytes)

    def gradient_bytes(self) -> int:
        """Return the bytes of all gradients on this GPU."""
        return self.work.trained_parameters // self.work.shards * self.work.trained_bytes

    def temporary_parts(self) -> dict[str, list[Part]]:
        """Return what is allocated during each phase only."""
        gradients = Part(
            "gradients", 0 if self.ddp else self.gradient_bytes(),
            f"{self.work.trained_parameters:,} trained parameters",
        )  # fmt: skip
        return {
            # vLLM starts after the trainer's weights are loaded and needs far more than loading them does.
            "load": [] if self.colocated else self._load_parts(),
            "generate": self._generation_parts(),
            "score": [*(self._scoring_parts() if self._computes_old_logprobs() else []), *self._reward_passes()],
            "update": self._update_parts(),
            "step": [gradients, Part("optimizer temporaries", self.optimizer_bytes()[2], "during its step")],
        }

    def _load_parts(self) -> list[Part]:
        parts = [Part("loading", self._largest_matrix(), "one tensor twice")]
        if self.work.sharded:
            total = self.work.parameters * self.work.dtype_bytes
            reason = "each GPU loads the full model before it is sharded"
            parts.append(Part("unsharded weights", total - total // self.work.shards, reason))
        return parts

    def _largest_matrix(self) -> int:
        return 2 * max(self.shape.hidden * self.shape.dense_intermediate, self.shape.vocab * self.shape.hidden)

    def _update_parts(self) -> list[Part]:
        work, shape, batch = self.work, self.shape, self.work.model_pass(backward=True)
        lengths = work.completion if work.of_examples else f"({work.prompt} + {work.completion})"
        tokens = f"{work.micro_batch} x {lengths} tokens"
        saved = "the input of each layer" if batch.checkpointing else "all layers"
        layer = f"{work.attention} attention" + (", recomputed for backward" if batch.checkpointing else "")
        logits = {
            "held": f"{work.micro_batch} x {work.completion} x {shape.vocab:,}, three copies in float32",
            "liger": "Liger: one completion at a time",
            "fused": "TRL's tiled head",
        }[work.logits]
        activations = formulas.stored_activations(shape, batch) // work.device_map_gpus
        parts = [
            Part("activations", activations, f"{tokens}, {saved}, {batch.precision}"),
            Part("layer temporaries", formulas.temporary_activations(shape, batch), layer),
            Part("logits", formulas.logits_bytes(shape, batch, work.logits, backward=True), logits),
        ]
        if work.lora:
            size = formulas.adapter_input(shape, batch)
            parts.append(Part("adapter input", size, "PEFT casts the widest one to float32, and autocast back"))
        with_reference = self.settings["trainer"] == "dpo" and not self.settings.get("precompute_ref_log_probs")
        if with_reference:
            parts.append(self._reference_pass(sum(part.size for part in parts[1:])))
        if batch.precision == "mixed":
            models = 2 if with_reference and not work.lora else 1
            size = models * work.parameters // work.device_map_gpus * 2
            parts.append(Part("bfloat16 copies", size, "autocast's copies of the float32 weights, until backward"))
        if work.quantization != "none":
            parts.append(Part("dequantized", self._largest_matrix(), "the largest matrix"))
        if work.lora and self.settings["target_parameters"]:
            targets = list(self.settings["target_parameters"])
            size = formulas.expert_deltas(shape, targets, work.dtype_bytes)
            parts.append(Part("expert deltas", size, "PEFT materialises B @ A at the size of its targets"))
        micro_batches = math.ceil(work.completions / work.micro_batch)
        if micro_batches > 1:  # DDP copies them into its buckets with the last micro-batch
            reason = f"accumulated over {micro_batches} micro-batches"
            parts.append(Part("gradients", self.gradient_bytes(), reason))
        if work.sharded:
            sizes = gathered_sizes(shape, work.gathered_bytes)
            reduced = 0 if work.lora else sizes.gradients(sizes.model // work.parameters)
            parts += [
                self._gathered_layers(),
                Part("gradient reduction", reduced, "FSDP: the largest part, before it is summed over the GPUs"),
            ]
        return parts

    def _reward_passes(self) -> list[Part]:
        """The pass of the largest reward model, before those of the policy."""
        work, size = self.work, min(self.settings["per_device_eval_batch_size"], self.work.sampled)
        if not work.reward_models:
            return []
        batch = MicroBatch(size, work.prompt, work.completion, work.precision, "sdpa")
        passes = [formulas.inference_activations(shape, batch) for shape in work.reward_models]
        return [Part("reward pass", max(passes), f"{size} x ({work.prompt} + {work.completion}) tokens")]

    def _reference_pass(self, backward: int) -> Part:
        """What DPO's pass of the reference needs beyond the `backward` bytes of the backward pass after it."""
        batch = self.work.model_pass(backward=False)
        method = self.work.logits.replace("liger", "held")
        logits = formulas.logits_bytes(self.shape, batch, method, backward=False)
        size = formulas.inference_activations(self.shape, batch) + logits - backward
        return Part("reference pass", max(0, size), "log-probabilities of the reference, nothing saved")

    def _gathered_layers(self) -> Part:
        sizes = gathered_sizes(self.shape, self.work.gathered_bytes)
        return Part("gathered", sizes.during_training(), "FSDP: embeddings, head, one layer and the next")

    def _computes_old_logprobs(self) -> bool:
        """Whether TRL computes log-probabilities of the completions before the update."""
        settings = self.settings
        if self.work.of_examples:
            return False
        updates = updates_per_generation(settings, self.work.world_size)
        return settings["beta"] > 0 or updates > 1 or settings["use_vllm"]

    def _scoring_parts(self) -> list[Part]:
        work, batch = self.work, self.work.model_pass(backward=False)
        tokens = f"{work.micro_batch} x ({work.prompt} + {work.completion}) tokens"
        # TRL does not use Liger's loss here: it computes all logits.
        method = work.logits.replace("liger", "held")
        logits = formulas.logits_bytes(self.shape, batch, method, backward=False)
        parts = [
            Part("forward", formulas.inference_activations(self.shape, batch), f"{tokens}, nothing saved"),
            Part("logits", logits, "as in the update, without gradients"),
        ]
        if work.sharded:
            parts.append(self._gathered_layers())
            if self.settings["beta"] > 0 and not work.lora:
                size = gathered_sizes(self.shape, work.gathered_bytes).model
                parts.append(Part("gathered reference", size, "FSDP: TRL shards it as a single unit"))
        return parts

    def _generation_parts(self) -> list[Part]:
        work, generation = self.work, sampling_engine(self.settings)
        if generation.startswith("vllm") or work.of_examples:
            return []
        sampled = work.sampled
        # TRL lets transformers generate all completions sampled at once at once, whatever the micro-batch.
        prefill = MicroBatch(
            sampled, work.prompt, 0, work.precision, work.attention, quantized=work.prepared_quantization
        )  # fmt: skip
        length = work.prompt + work.completion
        cache = formulas.kv_cache_bytes(self.shape, sampled, length, work.dtype_bytes)
        is_static = generation == "transformers-graphs"
        gathered = gathered_sizes(self.shape, work.gathered_bytes).model if work.sharded else 0
        sampling = sampled * self.shape.vocab * 4 * 4
        return [
            Part("gathered", gathered, "FSDP: the full model, to generate"),
            Part(
                "KV cache", 0 if is_static else cache // work.device_map_gpus,
                f"all {sampled} completions sampled at once",
            ),
            Part(
                "prefill", formulas.inference_activations(self.shape, prefill),
                f"{sampled} prompts in one pass",
            ),
            Part("sampling", sampling, "last logits in float32, sorted and normalised"),
        ]  # fmt: skip

    def vllm_bounds(self) -> tuple[int, int]:
        """Return (minimum, maximum) bytes that vLLM uses on one GPU.

        The minimum is the weights and the KV cache of one group, the maximum adds the cache of all completions.
        """
        work, shape, settings = self.work, self.shape, self.settings
        # vLLM loads float32 checkpoints in 16 bits.
        weights = formulas.weight_bytes(
            shape, 2, shape.bitsandbytes_type or "none", double=shape.double_quantization
        )  # fmt: skip
        weights = formulas.mxfp4_bytes(shape) if shape.quant_method == "mxfp4" else weights
        length = settings["vllm_max_model_length"] or work.prompt + work.completion
        tensor_parallel = settings["vllm_tensor_parallel_size"]
        group = formulas.kv_cache_bytes(shape, settings["num_generations"], length, 2)
        full = formulas.kv_cache_bytes(shape, work.sampled * tensor_parallel, length, 2)
        fixed = weights // tensor_parallel + formulas.VLLM_INSIDE_SHARE
        return fixed + group // tensor_parallel, fixed + int(1.1 * full) // tensor_parallel

    def vllm_share(self, trainer: Mapping[str, int]) -> VllmShare:
        """Return vLLM's share: the setting, or the memory that the trainer's phases leave free."""
        if not self.colocated:
            return VllmShare()
        minimum, maximum = self.vllm_bounds()
        share, notes = self.settings["vllm_gpu_memory_utilization"], []
        if not share and self.memory:
            awake = [
                phase for phase in PHASES if not (self.settings["vllm_enable_sleep_mode"] and phase in SLEEP_PHASES)
            ]
            rest = MAX_USE * self.free - max(trainer[phase] for phase in awake)
            share = math.floor(100 * rest / self.memory) / 100
            if share * self.memory < minimum:
                notes.append(f"the trainer leaves a share of {max(share, 0.0):.2f} to vLLM, which is too little")
                share = min(MAX_VLLM_SHARE, math.ceil(100 * minimum / self.memory) / 100)
            else:
                share = min(share, MAX_VLLM_SHARE, math.ceil(100 * maximum / self.memory) / 100)
        size = int(share * self.memory) if self.memory else minimum
        if self.memory and size < minimum:
            notes.append(
                f"vLLM needs {minimum / GIB:.1f} GiB for the weights and the KV cache of one group; "
                f"a share of {share:.2f} is {size / GIB:.1f} GiB"
            )
        return VllmShare(share, size, minimum, tuple(notes))

    def _vllm_sizes(self, awake: int) -> dict[str, int]:
        """Return vLLM's bytes by phase."""
        if not self.colocated:
            return dict.fromkeys(PHASES, 0)
        sleeps = bool(self.settings["vllm_enable_sleep_mode"])
        return {phase: formulas.VLLM_ASLEEP if sleeps and phase in SLEEP_PHASES else awake for phase in PHASES}

    def as_record(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        work, settings = self.work, self.settings
        persistent, temporary = self.persistent_parts(), self.temporary_parts()
        fixed = sum(part.size for part in persistent)
        allocated = {phase: fixed + sum(part.size for part in parts) for phase, parts in temporary.items()}
        allocated["load"] -= sum(part.size for part in persistent if part.name in ALLOCATED_LATER)
        overhead = formulas.CUDA_CONTEXT + (formulas.NCCL_BUFFERS if work.world_size > 1 else 0)
        overhead += formulas.VLLM_OUTSIDE_SHARE if self.colocated else 0
        fragmentation = {
            phase: int(formulas.FRAGMENTATION * max(0, size - fixed)) for phase, size in allocated.items()
        }
        trainer = {phase: allocated[phase] + fragmentation[phase] + overhead for phase in PHASES}
        vllm = self.vllm_share(trainer)
        vllm_sizes, vllm_minimum = self._vllm_sizes(vllm.size), self._vllm_sizes(vllm.minimum)
        phases = {phase: trainer[phase] + vllm_sizes[phase] for phase in PHASES}
        peak_phase = max(PHASES, key=lambda phase: phases[phase])
        peak = phases[peak_phase]
        fits = peak <= MAX_USE * self.free and vllm.size >= vllm.minimum if self.memory else None
        parts = [part for part in persistent if peak_phase != "load" or part.name not in ALLOCATED_LATER]
        parts += temporary[peak_phase]
        if vllm_sizes[peak_phase]:
            asleep = bool(settings["vllm_enable_sleep_mode"]) and peak_phase in SLEEP_PHASES
            reason = "asleep" if asleep else f"share {vllm.share:.2f} of the GPU's memory"
            parts.append(Part("vLLM", vllm_sizes[peak_phase], reason))
        libraries = "context, workspaces" + (", NCCL" if work.world_size > 1 else "")
        parts += [
            Part("CUDA and libraries", overhead, libraries),
            Part("fragmentation", fragmentation[peak_phase], "blocks that the allocator cannot reuse"),
        ]
        has_share = self.colocated and bool(self.memory)
        return {
            "schema": 1, "model_type": self.shape.model_type, "parameters": work.parameters,
            "trained": work.trained_parameters, "gpus": work.gpus, "gpu": self.machine.get("name") or "",
            "memory": self.memory, "free": self.free, "usable": int(MAX_USE * self.free),
            "prompt_tokens": work.prompt, "completion_tokens": work.completion,
            "trainer": settings["trainer"],
            "answers": work.completions // work.sequences_per_example,
            "per_device_train_batch_size": work.micro_batch // work.sequences_per_example,
            "dtype": work.dtype, "attention": work.attention,
            "parts": [{"part": name, "bytes": size, "why": reason} for name, size, reason in parts if size > 0],
            "phases": {phase: size for phase, size in phases.items() if temporary[phase] or vllm_sizes[phase]},
            "peak": peak, "peak_phase": peak_phase,
            "peak_allocated": max(allocated[phase] + vllm_sizes[phase] for phase in PHASES),
            "trainer_peak": max(trainer.values()),
            "needed": max(trainer[phase] + vllm_minimum[phase] for phase in PHASES),
            "host": self._host_bytes(), "fits": fits,
            "vllm_shortage": max(0, vllm.minimum - vllm.size) if self.memory else 0,
            "vllm_gpu_memory_utilization": round(vllm.share, 2) if has_share else None,
            "vllm_share_computed": has_share and not settings["vllm_gpu_memory_utilization"],
            "notes": [*work.notes, *vllm.notes],
        }  # fmt: skip

    def _host_bytes(self) -> int:
        """Host memory in addition to the libraries: paged optimizer states, and the weights of a sleeping vLLM."""
        sleeps = self.colocated and self.settings["vllm_enable_sleep_mode"]
        weights = self.vllm_bounds()[0] - formulas.VLLM_INSIDE_SHARE if sleeps else 0
        return self.optimizer_bytes()[1] + weights
