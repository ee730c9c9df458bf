"""What a run holds in each of its phases, by the formulas of memory_parts: what depends on settings is decided here.

The phases: load, generate, score (log-probabilities without gradients), update (forward and backward), and the
optimizer's step. The peak is the largest of them, and nothing is counted twice: what one phase frees, the next has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from checks.batches import model_length
from checks.dtypes import choose_dtype
from checks.versions import at_least
from data.lengths import choose_bounds
from memory import formulas as parts
from memory.formulas import GIB, Pass
from memory.fsdp import gathered
from memory.shape import Shape, count_parameters

PROMPT_TOKENS = 512  # where nothing says how long prompts are
TASK_PROMPT_TOKENS = 64  # of sort and tes, whose prompts are symbols
MOST_SHARE = 0.95
NEAR = 0.99  # fuller than this is not called fitting: the formulas are right to a few per cent, not to one
PHASES = ("load", "generate", "score", "update", "step")
ASLEEP = ("score", "update", "step")  # phases in which a vLLM that can sleep does
LATER = ("optimizer", "DDP's buckets")  # made when the training begins


@dataclass
class Phases:
    """One plan while it is made. Only what depends on settings is decided here; the formulas are memory_parts'."""

    shape: Shape
    settings: dict[str, Any]
    machine: dict[str, Any]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    trl: str = ""
    attention: str = ""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked, self.notes = self.settings, list(self.shape.notes)
        self.gpus = max(1, int(self.machine.get("gpus") or 1))
        self.spread = self.gpus if asked["device_map"] else 1  # one model over all GPUs of one process
        self.world = 1 if asked["device_map"] else self.gpus
        self.sharded = asked["sharding"] == "fsdp" and self.world > 1
        self.shares = self.world if self.sharded else self.spread  # among how many GPUs what stays is divided
        self.prompt, self.completion = self._lengths()
        self.answers = max(1, math.ceil(asked["prompts_per_step"] * asked["num_generations"] / self.world))
        self.micro = min(asked["micro_batch"] or self.answers, self.answers)
        self.lora = asked["lora_rank"] > 0
        # What bitsandbytes wrote stays as it is, whatever is asked for (quantization.quantize_options).
        self.quantization = self.shape.quantized or asked["quantization"]
        self.double = self.shape.double if self.shape.quantized else asked["double_quantization"]
        if self.shape.quantized and asked["quantization"] != "none":
            self.notes.append("the checkpoint is quantised by bitsandbytes already; quantization counts for nothing")
        self.dtype, self.mode = self._dtype()
        self.size = parts.SIZES[self.dtype]
        # With experts the model is not prepared by PEFT (models.prepare_for_training).
        self.quantized = "" if self.quantization == "none" or self.shape.experts else self.quantization
        self.parameters = sum(count_parameters(self.shape).values())
        self.trained = self._adapter() if self.lora else self.parameters
        self.attention = self._attention()
        if not self.trl and self.logits_held() != "fused":
            self.notes.append("TRL is not known: counted as before 1.15, which holds all logits; --python says it")

    def _dtype(self) -> tuple[str, str]:
        """(the type that weights are held in, the one that is computed in)."""
        compute, held, notes = choose_types(self.shape, self.settings, self.machine)
        self.notes += notes
        if held != "float32" or compute == "float32":
            return held, "bfloat16" if held == "float16" else held
        return held, "bfloat16" if self.sharded else "mixed"  # the layers of a divided model are gathered so

    def _adapter(self) -> int:
        """Weights of the adapter; a target that this model is not known to have is told."""
        rank, modules, experts = (self.settings[f"lora_{name}"] for name in ("rank", "targets", "target_parameters"))
        unknown = [name for name in modules if not parts.lora_parameters(self.shape, rank, [name], [])]
        unknown += [name for name in experts if not parts.lora_parameters(self.shape, rank, [], [name])]
        if unknown:
            self.notes.append(f"LoRA on {', '.join(unknown)} is not counted: no such part of it is known here")
        return parts.lora_parameters(self.shape, rank, list(modules), list(experts))

    def _attention(self) -> str:
        named = self.settings["attention"]
        if named == "auto":
            # Attention sinks need eager or flex; the cautious one of the two is planned for.
            named = self.attention or ("eager" if self.shape.model_type == "gpt_oss" else "sdpa")
        return str(named)

    def _lengths(self) -> tuple[int, int]:
        asked = self.settings
        prompt, completion = self.prompt_tokens, asked["max_completion_length"]
        if asked["task"] != "dataset":
            whole, bound, guess = 0, 0, TASK_PROMPT_TOKENS
        else:
            (whole, bound), guess = choose_bounds(asked, self.shape.context), PROMPT_TOKENS
        completion = min(filter(None, (self.completion_tokens, completion)), default=0)
        if not prompt and asked["max_prompt_length"]:
            prompt = bound  # what max_seq_length leaves may be less
        elif not prompt:
            prompt = bound if asked["max_seq_length"] and completion else min(guess, bound or guess)
            prompt = min(prompt, whole // 2) if whole and not completion else prompt
            self.notes.append(f"prompts are taken to be {prompt} tokens long: --set max_prompt_length=N says it")
        if not completion:
            completion = max(1, whole - prompt)
            what = "max_seq_length" if asked["max_seq_length"] else f"the model's context of {whole:,}"
            self.notes.append(f"answers are taken to be {completion} tokens long, what {what} leaves")
        if asked["vllm_max_model_length"] and not self.prompt_tokens:  # prompts are no longer than what is left of it
            prompt = max(1, min(prompt, asked["vllm_max_model_length"] - completion))
        model_length(asked, prompt, completion)
        return prompt, completion

    def logits_held(self) -> str:
        """How the loss goes about the logits: held, liger or fused."""
        asked = self.settings["liger_loss"]
        # TRL computes log-probabilities in tiles of the head: 1.14 with use_liger_kernel (_chunked_logps), 1.15 and
        # newer always (add_fused_lm_head).
        if at_least(self.trl, (1, 15)) or (asked and at_least(self.trl, (1, 14))):
            return "fused"
        return "liger" if asked else "held"

    def _pass(self, *, backward: bool) -> Pass:
        mode = self.mode
        if backward and mode == "mixed" and self.logits_held() == "liger":
            # TRL's Liger path calls the model inside accelerate's autocast wrapper, which then does nothing: float32
            # weights compute in float32 (TRL 0.23.1, _get_last_hidden_state; such a run ran out in the MLP).
            mode = "float32"
        names = set(self.settings["lora_targets"])
        everywhere = "all-linear" in names or names & {"gate_proj", "up_proj", "down_proj"}
        kind = ("all" if everywhere else "attention") if self.lora else ""
        checkpointing = bool(self.settings["gradient_checkpointing"])
        liger = self.settings["liger_kernels"] == "on"  # settled when the model was loaded
        return Pass(
            self.micro, self.prompt, self.completion, mode, self.attention, checkpointing, kind, liger,
            self.quantized, self._masked(),
        )  # fmt: skip

    def _masked(self) -> bool:
        """Whether passes have a mask: model/unpadded.py takes it from SDPA's; a window in the text is one itself."""
        asked = self.settings
        return self.attention != "sdpa" or any(
            (asked["compile"], asked["trust_remote_code"], self.shape.window_layers)
        )

    def static(self) -> list[tuple[str, int, str]]:
        """What stays from the first step to the last: (part, bytes, why)."""
        asked, shape = self.settings, self.shape
        weights = parts.weight_bytes(
            shape, self.size, self.quantization, double=self.double
        ) // self.shares  # fmt: skip
        rest = "float32" if self.quantized else self.dtype
        what = self.dtype if self.quantization == "none" else f"{self.quantization}, the rest {rest}"
        why = f"{self.parameters:,} parameters in {what}" + (f", divided by {self.shares}" if self.sharded else "")
        if shape.method == "mxfp4" and self.quantization == "none":
            why += ", dequantised from MXFP4"
        if self.quantization != "none" and shape.model_type == "gpt_oss":
            self.notes.append("gpt-oss's experts are no linear layers: bitsandbytes leaves them in bfloat16")
        rows = [("weights", weights, why)]
        if asked["beta"] > 0 and not self.lora:
            rows.append(("reference model", weights, "beta > 0: the first policy, whole; an adapter needs none"))
        if self.lora:
            held = self.trained * 4 // (self.shares if self.sharded else 1)
            rows.append(("LoRA", held, f"{self.trained:,} parameters, rank {asked['lora_rank']}, float32"))
        if asked["generation"] == "transformers-graphs":
            size = 2 if self.mode == "mixed" else self.size
            cache = parts.kv_cache(shape, self.answers, self.prompt + self.completion, size)
            rows.append(("KV cache", cache, f"kept for the graph: {self.answers} answers at once"))
            if self.mode == "mixed":
                rows.append(("sampling twin", self.parameters * 2, "bfloat16, of float32 weights"))
        if self.world > 1 and not self.sharded:
            rows.append(("DDP's buckets", self.gradients(), "gradients lie in them, also while it samples"))
        on_gpu, _, _ = self.optimizer()
        rows.append(("optimizer", on_gpu, f"{asked['optimizer']} over {self.trained:,} parameters"))
        return rows

    def optimizer(self) -> tuple[int, int, int]:
        """(GPU, host, passing) of the optimizer's states."""
        return parts.optimizer_bytes(
            self.settings["optimizer"], self.trained // self.shares, 4 if self.lora else self.size
        )

    def gradients(self) -> int:
        """Bytes of all gradients on this GPU."""
        return self.trained // self.shares * (4 if self.lora else self.size)

    def dynamic(self) -> dict[str, list[tuple[str, int, str]]]:
        """What comes and goes, by phase."""
        asked, shape, spread = self.settings, self.shape, self.spread
        step, forward = self._pass(backward=True), self._pass(backward=False)
        passes = math.ceil(self.answers / self.micro)
        largest = 2 * max(shape.hidden * shape.dense_intermediate, shape.vocab * shape.hidden)
        shown = f"{self.micro} x ({self.prompt} + {self.completion}) tokens"
        kept = "the inputs of each layer" if step.checkpointing else "all layers"
        update = [
            ("activations", parts.stored_activations(shape, step) // spread, f"{shown}, {kept}, {step.mode}"),
            ("within a layer", parts.passing_activations(shape, step), f"{self.attention} attention"
             + (", computed again for backward" if step.checkpointing else "")),
            ("logits", parts.logits(shape, step, self.logits_held(), backward=True),
             {"held": f"{self.micro} x {self.completion} x {shape.vocab:,}, three copies in float32",
              "liger": "Liger: one answer at a time", "fused": "TRL's head in tiles"}[self.logits_held()]),
        ]  # fmt: skip
        if step.mode == "mixed":
            update.append(
                ("bfloat16 copies", self.parameters // spread * 2, "autocast's, of float32 weights, until backward")
            )
        if self.quantization != "none":
            update.append(("dequantised", largest, "the largest matrix"))
        if self.lora and asked["lora_target_parameters"]:
            deltas = parts.expert_deltas(shape, list(asked["lora_target_parameters"]), self.size)
            update.append(("expert deltas", deltas, "PEFT makes B @ A as large as the parameters it targets"))
        if passes > 1:  # DDP puts them into its buckets with the last pass
            update.append(("gradients", self.gradients(), f"of the passes before, {passes} a step"))
        # Liger's loss does not reach this far: TRL scores with the whole logits.
        looked = parts.logits(shape, forward, self.logits_held().replace("liger", "held"), backward=False)
        score = [("forward", parts.forward_only(shape, forward), f"{shown}, nothing kept"),
                 ("logits", looked, "the same, without gradients")]  # fmt: skip
        loading = [("loading", largest, "one tensor twice")]
        if self.sharded:
            part = gathered(shape, 2 if self.mode == "bfloat16" else 4)
            turn = ("gathered", part.in_turn(), "FSDP: embeddings and head, a layer, and the next")
            update += [turn, ("gradients in turn", 0 if self.lora else part.gradients(part.whole // self.parameters),
                              "FSDP: of the largest part, before they are added up")]  # fmt: skip
            score.append(turn)
            if asked["beta"] > 0 and not self.lora:
                score.append(("gathered reference", part.whole, "FSDP: TRL divides it as one piece"))
            before = self.parameters * self.size
            loading.append(("before it is divided", before - before // self.shares, "each GPU loads the whole model"))
        in_buckets = self.world > 1 and not self.sharded
        done = [("gradients", 0 if in_buckets else self.gradients(), f"{self.trained:,} trained parameters")]
        done.append(("optimizer's own", self.optimizer()[2], "while it steps"))
        return {
            # vLLM starts when the trainer's weights are there: it takes far more than loading them did.
            "load": [] if asked["generation"] == "vllm-colocate" else loading,
            "generate": self._generation(),
            "score": score if self._scores() else [],
            "update": update,
            "step": done,
        }

    def _scores(self) -> bool:
        """Whether TRL looks at the answers once more before it learns from them."""
        asked = self.settings
        return asked["beta"] > 0 or asked["num_iterations"] > 1 or asked["generation"].startswith("vllm")

    def _generation(self) -> list[tuple[str, int, str]]:
        if self.settings["generation"].startswith("vllm"):
            return []
        if self.settings["generation"] == "transformers-paged":
            self.notes.append("transformers' paged cache may take more: it fills what is free when it starts")
        # TRL lets transformers answer all prompts of a step at once, whatever the micro-batch.
        every = Pass(self.answers, self.prompt, 0, self.mode, self.attention, quantized=self.quantized)
        cache = parts.kv_cache(self.shape, self.answers, self.prompt + self.completion, self.size)
        rows = self.answers * self.shape.vocab * 4 * 4
        whole = gathered(self.shape, 2 if self.mode == "bfloat16" else 4).whole if self.sharded else 0
        stays = self.settings["generation"] == "transformers-graphs"
        return [
            ("gathered", whole, "FSDP: the whole model, to answer"),
            ("KV cache", 0 if stays else cache // self.spread, f"all {self.answers} answers of a step at once"),
            ("prefill", parts.forward_only(self.shape, every), f"{self.answers} prompts in one pass"),
            ("sampling", rows, "last logits in float32, sorted and normalised"),
        ]

    def vllm_needs(self) -> tuple[int, int]:
        """(least, most) that vLLM makes use of on one GPU: weights and one group's cache; all answers' cache."""
        asked, shape = self.settings, self.shape
        # It holds float32 checkpoints in 16 bits.
        weights = parts.weight_bytes(shape, 2, shape.quantized or "none", double=shape.double)
        weights = parts.mxfp4_bytes(shape) if shape.method == "mxfp4" else weights
        length = asked["vllm_max_model_length"] or self.prompt + self.completion
        together = asked["vllm_tensor_parallel"]
        group = parts.kv_cache(shape, asked["num_generations"], length, 2)
        every = parts.kv_cache(shape, self.answers * together, length, 2)
        fixed = weights // together + parts.VLLM_INSIDE
        return fixed + group // together, fixed + int(1.1 * every) // together

    def as_record(self) -> dict[str, Any]:
        """Everything, summed up."""
        asked, static, dynamic = self.settings, self.static(), self.dynamic()
        fixed = sum(size for _, size, _ in static)
        allocated = {phase: fixed + sum(size for _, size, _ in rows) for phase, rows in dynamic.items()}
        allocated["load"] -= sum(size for name, size, _ in static if name in LATER)
        overhead = parts.CONTEXT + (parts.NCCL if self.world > 1 else 0)
        spare = {
            phase: int(parts.FRAGMENTS * (size - fixed)) if size > fixed else 0 for phase, size in allocated.items()
        }
        colocate, sleeps = asked["generation"] == "vllm-colocate", bool(asked["vllm_sleep"])
        memory, free = self.machine.get("memory") or 0, self.machine.get("free") or self.machine.get("memory") or 0
        overhead += parts.VLLM_OUTSIDE if colocate else 0
        trainer = {phase: allocated[phase] + spare[phase] + overhead for phase in PHASES}
        least = self.vllm_needs()[0] if colocate else 0
        share = (asked["vllm_share"] or self._share(trainer, memory, free)) if colocate else 0.0
        vllm = int(share * memory) if memory else least
        held, needed = ({phase: parts.VLLM_ASLEEP if sleeps and phase in ASLEEP else size for phase in PHASES}
                        if colocate else dict.fromkeys(PHASES, 0) for size in (vllm, least))  # fmt: skip
        phases = {phase: trainer[phase] + held[phase] for phase in PHASES}
        peak_phase = max(PHASES, key=lambda phase: phases[phase])
        peak = phases[peak_phase]
        fits = peak <= NEAR * free and vllm >= least if memory else None
        if memory and colocate and vllm < least:
            self.notes.append(
                f"vLLM needs {least / GIB:.1f} GiB for the weights and one group's cache; "
                f"a share of {share:.2f} is {vllm / GIB:.1f}"
            )
        rows = [row for row in static if peak_phase != "load" or row[0] not in LATER] + dynamic[peak_phase]
        if held[peak_phase]:
            asleep = sleeps and peak_phase in ASLEEP
            rows.append(("vLLM", held[peak_phase], "asleep" if asleep else f"share {share:.2f} of the GPU's memory"))
        rows += [("CUDA and libraries", overhead, "context, workspaces" + (", NCCL" if self.world > 1 else "")),
                 ("fragments", spare[peak_phase], "blocks that the allocator cannot use")]  # fmt: skip
        return {
            "schema": 1, "model_type": self.shape.model_type, "parameters": self.parameters,
            "trained": self.trained, "gpus": self.gpus, "gpu": self.machine.get("name") or "", "memory": memory,
            "free": free, "prompt_tokens": self.prompt, "completion_tokens": self.completion,
            "answers": self.answers, "micro_batch": self.micro, "dtype": self.dtype, "attention": self.attention,
            "parts": [{"part": n, "bytes": s, "why": w} for n, s, w in rows if s > 0],
            "phases": {phase: size for phase, size in phases.items() if dynamic[phase] or held[phase]},
            "peak": peak, "peak_phase": peak_phase,
            "peak_allocated": max(allocated[phase] + held[phase] for phase in PHASES),
            "trainer_peak": max(trainer.values()), "needed": max(trainer[phase] + needed[phase] for phase in PHASES),
            "host": self._host(), "fits": fits,
            "vllm_share": round(share, 2) if colocate and memory else None,
            "vllm_share_computed": bool(colocate and memory and not asked["vllm_share"]), "notes": list(self.notes),
        }  # fmt: skip

    def _share(self, trainer: dict[str, int], memory: int, free: int) -> float:
        """What the trainer leaves to vLLM, rounded down: no more than vLLM has a use for, no less than it needs."""
        if not memory:
            return 0.0
        least, most = self.vllm_needs()
        beside = [phase for phase in PHASES if not (self.settings["vllm_sleep"] and phase in ASLEEP)]
        left = math.floor(100 * (NEAR * free - max(trainer[phase] for phase in beside)) / memory) / 100
        if left * memory < least:
            self.notes.append(f"the trainer leaves {max(left, 0.0):.2f} of the GPU's memory to vLLM: too little")
            return min(MOST_SHARE, math.ceil(100 * least / memory) / 100)
        return min(left, MOST_SHARE, math.ceil(100 * most / memory) / 100)

    def _host(self) -> int:
        """Host memory of one process beyond the libraries: paged optimizer states, the weights of a sleeping vLLM."""
        asleep = self.settings["generation"] == "vllm-colocate" and self.settings["vllm_sleep"]
        weights = self.vllm_needs()[0] - parts.VLLM_INSIDE if asleep else 0
        return self.optimizer()[1] + weights


def choose_types(shape: Shape, settings: dict[str, Any], machine: dict[str, Any]) -> tuple[str, str, list[str]]:
    """The type to compute in, the one that weights are held in, and notes, as the trainer chooses them."""
    if settings["task"] != "dataset":
        return "float32", "float32", []  # a model made on the spot
    # TRL turns autocast on where there is a GPU for it, and float32 weights then run as copies of 16 bits.
    has_bfloat16 = settings["device"] != "cpu" and machine.get("bfloat16", True)
    return choose_dtype(settings, shape.method, has_bfloat16=has_bfloat16)
