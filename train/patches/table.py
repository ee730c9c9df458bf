"""Every patch of TRL, vLLM, transformers, accelerate and torch: one table, applied by `apply_patches`.

A patch is a module with a function `apply(context)`, which returns False where the installed libraries lack the
patched attributes. Speed patches compute what the unpatched library computes, and `patches = false` leaves them out.
The other patches are not optional: without them the run would ignore a setting, fail, or not measure its steps.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from checks.dropout import dropout_rate
from checks.engines import quantization_type, sampling_engine
from checks.rollouts import uses_rollouts
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from patches.context import PatchContext

Stage = Literal["model", "policy", "construction", "trainer"]
Kind = Literal["speed", "correctness", "generation", "measurement"]

# vLLM of the current profiles. Equality with the unpatched library was shown on an H200: 0.26.0, and 0.31.0 on
# 2026-11-26 (tests/benchmarks/weight_sync_gpu.py and sampling_gpu.py). The releases between them are not tested.
CURRENT_VLLM = ">=0.26,<0.32,!=0.27.*,!=0.28.*,!=0.29.*,!=0.30.*"

# Fields whose computation reads the log-probabilities before the update, or changes those of the loss.
ALL_TRAINERS = ("grpo", "sft", "dpo")
SCORED_FIELDS = {"off_policy_mask_threshold", "delta", "cast_lm_head_to_fp32", "vllm_importance_sampling_clip_min"}


@dataclass(frozen=True)
class Patch:
    """One patch. Stages: "model" when the model is loaded, "policy" before TRL's trainer is constructed,

    "construction" during it (`apply` returns a context manager), "trainer" after it.
    """

    name: str
    tested: Mapping[str, str]  # versions of the patched libraries
    summary: str
    fallback: str  # what the run does without it
    module: str
    condition: Callable[[PatchContext], bool]
    kind: Kind = "speed"
    stages: tuple[Stage, ...] = ("trainer",)
    trainers: tuple[str, ...] = ("grpo",)

    def untested(self, installed: Any) -> list[tuple[str, Version | None]]:
        """The patched libraries whose installed version is not tested; all without InstalledVersions."""
        found = [(library, installed and installed.version(library)) for library in self.tested]
        return [
            (library, version)
            for library, version in found
            if version is None or not SpecifierSet(self.tested[library]).contains(version, prereleases=True)
        ]


def _colocated(context: PatchContext) -> bool:
    return bool(sampling_engine(context.settings) == "vllm-colocate")


def _dropout(context: PatchContext) -> float:
    return dropout_rate(context.model) if context.model is not None else float(context.settings["lora_dropout"])


def _single_pass(context: PatchContext) -> bool:
    """vLLM samples, its samples are corrected, and each completion is used for one update.

    With dropout TRL's scoring pass drops other activations than the training pass.
    """
    settings, installed = context.settings, context.installed
    return (
        settings["use_vllm"]
        and settings["vllm_importance_sampling_correction"]
        and settings["num_iterations"] == 1
        and not SCORED_FIELDS & settings.keys()
        and not settings["generation_batch_size"]
        and not settings["steps_per_generation"]
        and not _dropout(context)
        and installed.has("vllm_importance_sampling_clip_max")  # TRL passes vLLM's log-probabilities to the loss
        # Up to TRL 1.13 Liger's loss computes the log-probabilities itself.
        and not (settings["use_liger_kernel"] and installed.trl < Version("1.14"))
    )


def _shared_prompts(context: PatchContext) -> bool:
    """Rows on a GPU in 16 bits, as FlashAttention needs; a checkpointed block would compute its attention alone."""
    settings = context.settings
    return (
        context.device == "cuda"
        and context.autocast == "bfloat16"
        and not (settings["torch_compile"] or settings["gradient_checkpointing"] or settings["fsdp"])
        and not _dropout(context)
    )


PATCHES: tuple[Patch, ...] = (
    Patch(
        "checkpoint-generation-config", {"transformers": ">=4.56,<5.18"},
        "sample by the run's settings, not by the checkpoint's generation_config.json",
        "transformers mixes the checkpoint's repetition penalty and temperature into the run's",
        "patches.generation_config", lambda context: bool(context.settings["model"]),
        kind="correctness", stages=("model",), trainers=ALL_TRAINERS,
    ),
    Patch(
        "non-reentrant-checkpointing", {"trl": ">=0.22,<1.17"},
        "keep gradient checkpointing non-reentrant after each generation",
        "TRL up to 0.23 enables the reentrant kind, which gives an adapter no gradient",
        "patches.gradient_checkpointing", lambda context: bool(context.settings["gradient_checkpointing"]),
        kind="correctness", stages=("model",), trainers=ALL_TRAINERS,
    ),
    Patch(
        "fsdp-generate", {"transformers": ">=5.17,<5.18"},
        "gather the sharded weights once per `generate`, not once per token",
        "every rank would have to generate the same number of tokens",
        "patches.fsdp_generate", lambda context: bool(context.settings["fsdp"]),
        kind="correctness", stages=("policy",),
    ),
    Patch(
        "transformers-graphs", {"transformers": ">=4.56,<5.18"},
        "sample with the decoding step replayed from a CUDA graph (cuda_graph_decoding)",
        "cuda_graph_decoding = false",
        "patches.transformers_cuda_graphs",
        lambda context: sampling_engine(context.settings) == "transformers-graphs",
        kind="generation", stages=("policy", "trainer"),
    ),
    Patch(
        "vllm-triton-attention", {"vllm": ">=0.19,<0.20"},
        "sample with Triton's attention in vLLM on a GPU before Ampere",
        "vLLM selects FlashInfer on compute capability 7.5, which needs nvcc",
        "patches.vllm_attention", lambda context: _colocated(context) and (0, 0) < context.capability < (8, 0),
        kind="correctness", stages=("policy",),
    ),
    Patch(
        "adapter-construction", {"trl": ">=0.22,<1.17"},
        "keep the adapter trainable, in float32 and without a second copy when TRL takes the model",
        "TRL freezes or rounds the adapter, or fails",
        "patches.adapter_construction", lambda context: context.settings["r"] > 0,
        kind="correctness", stages=("construction",), trainers=ALL_TRAINERS,
    ),
    Patch(
        "single-pass-logprobs", {"trl": ">=1.9,<1.17"},
        "take the importance-sampling weights from the training pass, without a separate scoring pass",
        "TRL runs the model once more over all completions",
        "patches.trl_single_pass", _single_pass, stages=("policy",),
    ),
    Patch(
        "unpadded-forward", {"transformers": ">=4.56,<5.18"},
        "train on rows shifted to the left, so that attention needs no mask",
        "masked attention, without FlashAttention's kernels",
        "patches.unpadded", lambda context: context.device == "cuda" and not context.settings["torch_compile"],
    ),
    Patch(
        "shared-prompts", {"trl": ">=1.16,<1.17", "transformers": ">=5.17,<5.18", "torch": ">=2.11,<2.14"},
        "train on each distinct prompt of a micro-batch once",
        "a prompt is computed once per completion",
        "patches.shared_prompts", _shared_prompts,
    ),
    Patch(
        "fused-rms-norm", {"transformers": ">=5.17,<5.18", "torch": ">=2.11,<2.14"},
        "compute norms of float32 activations with torch's kernel",
        "transformers' norms, which read and write the activations several times",
        "patches.rms_norm",
        lambda context: context.device == "cuda"
        and not (context.settings["torch_compile"] or context.settings["fsdp"]),
    ),
    Patch(
        "gloo-gather", {"trl": ">=0.22,<1.17"},
        "gather Python objects of the ranks over gloo, without waiting for the GPU",
        "NCCL gathers them when the GPU has finished its queue",
        "patches.gloo_gather", lambda context: getattr(context.ranks, "group", None) is not None,
    ),
    Patch(
        "ddp-bucket-views", {"accelerate": ">=1.4,<1.16"},
        "accumulate gradients in DDP's communication buckets",
        "DDP holds a second copy of the gradients",
        "patches.ddp_buckets", lambda context: getattr(context.ranks, "world_size", 1) > 1,
        trainers=ALL_TRAINERS,
    ),
    Patch(
        "distinct-prompt-tokenization", {"trl": ">=1.0,<1.17"},
        "tokenize each distinct prompt of a step once",
        "TRL tokenizes a prompt once per completion",
        "patches.prompt_tokenization", lambda _: True,
    ),
    Patch(
        "merged-copies", {"trl": ">=0.28,<1.17"},
        "send merged copies of the frozen weights to vLLM",
        "TRL merges the adapter in place, and a frozen weight in 16 bits changes by rounding with every sync",
        "patches.merged_copies",
        lambda context: context.settings["r"] > 0 and context.settings["use_vllm"] and not context.settings["fsdp"],
        kind="correctness",
    ),
    Patch(
        "uncompiled-vllm", {"vllm": ">=0.26,<0.27"},
        "start vLLM without torch.compile, with CUDA graphs of its own kernels",
        "vLLM compiles the model when it starts",
        "patches.vllm_uncompiled",
        lambda context: _colocated(context)
        and context.capability >= (8, 0)
        and context.settings["vllm_tensor_parallel_size"] == 1
        and quantization_type(context.settings) == "none",
        stages=("policy",),
    ),
    Patch(
        "one-call-weight-sync", {"trl": ">=0.28,<1.17", "vllm": CURRENT_VLLM},
        "load all weights into vLLM with one call, replayed from a CUDA graph where tensors stay in place",
        "TRL calls load_weights once per tensor",
        "patches.weight_sync", _colocated,
    ),
    Patch(
        "multi-step-scheduling", {"vllm": CURRENT_VLLM},
        "sample several tokens per scheduler plan; with FlashAttention from CUDA graphs",
        "vLLM plans every token",
        "patches.vllm_multi_step", _colocated,
    ),
    Patch(
        "lean-vllm-generate", {"trl": ">=0.28,<1.17", "vllm": ">=0.11,<0.33"},
        "return log-probabilities as plain numbers, and pause garbage collection while vLLM samples",
        "vLLM makes an object per token",
        "patches.vllm_generate",
        lambda context: _colocated(context) and context.settings["vllm_tensor_parallel_size"] == 1,
    ),
    # Last: it wraps the methods as they are called.
    Patch(
        "step-timers", {"trl": ">=0.22,<1.17"},
        "time generation, scoring and weight sync of each step",
        "columns of metrics.csv would be empty",
        "patches.step_timers", lambda context: context.timer is not None,
        kind="measurement",
    ),
)  # fmt: skip


def _applies(patch: Patch, context: PatchContext) -> bool:
    # Conversations with tools and environments are not tested with the patches of the speed.
    allowed = patch.kind != "speed" or not uses_rollouts(context.settings)
    return allowed and context.settings["trainer"] in patch.trainers and patch.condition(context)


def select_patches(context: PatchContext, stage: Stage) -> list[Patch]:
    """The patches of a stage whose conditions hold; of those that only gain speed, the tested ones.

    `patches = false` leaves out those as well.
    """
    return [
        patch
        for patch in PATCHES
        if stage in patch.stages
        and _applies(patch, context)
        and (patch.kind != "speed" or (context.settings["patches"] and not patch.untested(context.installed)))
    ]


def describe_untested(context: PatchContext) -> list[str]:
    """A note for each installed library with which patches of this run are not tested: which of them are off."""
    off: dict[str, list[str]] = {}
    on: dict[str, list[str]] = {}
    for patch in PATCHES:
        if _applies(patch, context) and (context.settings["patches"] or patch.kind != "speed"):
            for library, version in patch.untested(context.installed):
                names = off if patch.kind == "speed" else on
                names.setdefault(f"{library} {version}", []).append(f"{patch.name} ({patch.tested[library]})")
    return [
        f"{library} is not tested with "
        + "; ".join(
            f"the patches {', '.join(names[library])}, which are {state}"
            for names, state in ((off, "off"), (on, "needed and stay on"))
            if library in names
        )
        for library in dict.fromkeys([*off, *on])
    ]


def apply_patches(context: PatchContext, stage: Stage) -> list[Any]:
    """Apply the patches of a stage, add their names to `context.active`, and return what they return."""
    found = []
    for patch in select_patches(context, stage):
        result = importlib.import_module(patch.module).apply(context)
        if result is not False and patch.name not in context.active:
            context.active.append(patch.name)
        found.append(result)
    return found


def construct_trainer(context: PatchContext, trainer_class: type, **arguments: Any) -> Any:
    """Construct one of TRL's trainers, patched."""
    context.trainer_class = trainer_class
    apply_patches(context, "policy")
    with contextlib.ExitStack() as stack:
        for manager in apply_patches(context, "construction"):
            stack.enter_context(manager)
        context.trainer = context.trainer_class(model=context.model, **arguments)
    apply_patches(context, "trainer")
    return context.trainer


def remove_patches(context: PatchContext) -> None:
    """Restore the model's own `generate`: a saved, merged or copied model must not contain a patch."""
    vars(context.model).pop("generate", None)
