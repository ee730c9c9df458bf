"""The policy: a model, made or loaded, its tokenizer, and what the trainer needs to know about them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plan as memory_plan
import torch
from checks.cuda_graphs import check_cuda_graphs
from checks.dtypes import gpu_dtype
from checks.engines import sampling_engine
from modeling import loading, lora, tiny_model
from modeling.load_errors import read_config
from patches.context import PatchContext
from run.directory import RunDirectory
from run.ranks import Ranks
from settings import BadInput
from trl_config.versions import RunContext


@dataclass
class Policy:
    """A model ready for GRPO; lengths in tokens."""

    model: Any
    tokenizer: Any
    attention: str
    longest_prompt: int
    completion: int  # the longest completion
    autocast: str = ""  # "", bfloat16 or float16
    vllm_share: float = 0.0
    plan: dict[str, Any] = field(default_factory=dict)
    lora: list[dict[str, Any]] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)  # names of those applied when the model was loaded

    def describe(self, peak: int) -> dict[str, Any]:
        """Entries of result.json; `peak` is the peak of allocated GPU memory in bytes, 0 where unknown."""
        trained, total = loading.count_parameters(self.model)
        memory = memory_plan.compare_with_measured(self.plan, peak) if self.plan and peak else None
        return {
            "parameters": total,
            "trained_parameters": trained,
            "attention": self.attention,
            "lora": self.lora or None,
            "memory": memory,
        }

    def complete_context(self, context: RunContext) -> RunContext:
        """Add the facts of the model to the context of GRPOConfig's fields."""
        return dataclasses.replace(
            context,
            autocast=self.autocast,
            longest_prompt=self.longest_prompt,
            completion=self.completion,
            vllm_share=self.vllm_share,
        )

    def patch_context(self, settings: Mapping[str, Any], *, device: str, **more: Any) -> PatchContext:
        """The context of the patches that are applied to the trainer."""
        return PatchContext(
            settings,
            device,
            torch.cuda.get_device_capability() if device == "cuda" else (0, 0),
            model=self.model,
            autocast=self.autocast,
            longest_prompt=self.longest_prompt,
            active=list(self.patches),
            **more,
        )


def make_policy(
    run: RunDirectory, task: Any, settings: dict[str, Any], *, device: str, proven: Mapping[str, Any], ranks: Ranks
) -> Policy:
    """Load the model that the settings name, or make the tiny one."""
    if settings["model"]:
        return _load(run, task, settings, device=device, proven=proven, ranks=ranks)
    policy = _make_tiny(run, task, settings, device=device, proven=proven)
    policy.model.to(device)
    return policy


def _make_tiny(
    run: RunDirectory, task: Any, settings: dict[str, Any], *, device: str, proven: Mapping[str, Any]
) -> Policy:
    tokenizer = tiny_model.make_tokenizer(task.symbols)
    longest = max(len(row["prompt"].split()) for row in (*task.train, *task.held_out))
    completion = settings["max_completion_length"]
    facts = {"has_sinks": False, "dtype": "float32", "device": device, "installed": loading.find_packages()}
    requested = settings["attn_implementation"], os.environ.get("ATTN_IMPL", "")
    attention, notes = loading.choose_attention(*requested, dict(proven) or None, **facts)
    for note in notes:
        run.note(note)
    model = tiny_model.make_model(settings, tokenizer, longest + completion, attention)
    return Policy(model, tokenizer, model.config._attn_implementation, longest, completion)  # noqa: SLF001


def _load(
    run: RunDirectory, task: Any, settings: dict[str, Any], *, device: str, proven: Mapping[str, Any], ranks: Ranks
) -> Policy:
    """Load a pretrained model; configuration, tokenizer and prompts are checked before the weights are read."""
    config = read_config(settings)
    text = config.get_text_config()
    experts = getattr(text, "num_local_experts", 0) or getattr(text, "num_experts", 0) or 0
    kinds = text.model_type, getattr(text, "layer_types", None) or (), experts
    check_cuda_graphs(settings, *kinds)
    tokenizer, notes = loading.load_tokenizer(settings)
    lengths = task.use_tokenizer(tokenizer, getattr(text, "max_position_embeddings", 0) or 0)
    tokens = lengths["longest"] + lengths["max_completion_length"]
    check_cuda_graphs(settings, *kinds, window=loading.sliding_window(text), length=tokens)
    run.write_event("data", summary=task.describe(), lengths=lengths)
    kind = "prompts" if "prompts" in lengths else "examples"
    run.log(f"{kind}: {lengths[kind]}, longest {lengths['longest']} tokens, median {lengths['median']}")
    run.start_phase("model", settings["model"])
    environment = os.environ.get("ATTN_IMPL", "")
    loaded = loading.load_model(settings, device=device, environment=environment, proven=dict(proven) or None)
    for note in (*notes, *loaded.notes):
        run.note(note)
    model = loading.prepare_for_training(loaded.model, settings)
    rows: list[dict[str, Any]] = []
    if settings["r"]:
        model, rows = lora.add_lora(model, settings)
        trained, total = loading.count_parameters(model)
        run.write_event("lora", targets=rows, trainable=trained, total=total)
        for row in rows:
            run.log(f"LoRA on {row['target']}: {row['modules']} {row['kind']}s, {row['parameters']:,} weights")
            if row["note"]:
                run.note(row["note"])
    policy = Policy(
        model,
        tokenizer,
        loaded.attention,
        lengths["longest"],
        lengths["max_completion_length"],
        autocast="" if loaded.dtype == "float32" else loaded.dtype,
        lora=rows,
        patches=loaded.patches,
    )
    policy.plan = _plan_memory(run, config, policy, settings, device=device, ranks=ranks)
    policy.vllm_share = (
        settings["vllm_gpu_memory_utilization"] or policy.plan.get("vllm_gpu_memory_utilization") or 0.0
    )
    return policy


def _plan_memory(
    run: RunDirectory, config: Any, policy: Policy, settings: dict[str, Any], *, device: str, ranks: Ranks
) -> dict[str, Any]:
    """The memory plan of this GPU, logged before the training starts; empty on a CPU."""
    if device == "cpu":
        return {}
    total = torch.cuda.get_device_properties(0).total_memory
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()  # before this process allocated any
    machine = {
        "gpus": ranks.world_size,
        "memory": total,
        "free": free,
        "name": torch.cuda.get_device_name(),
        "bfloat16": gpu_dtype(torch.cuda.get_device_capability()) == "bfloat16",
    }
    try:
        plan = memory_plan.plan(
            memory_plan.parse_config(config.to_dict()),
            settings,
            machine,
            prompt_tokens=policy.longest_prompt,
            completion_tokens=policy.completion,
            trl=importlib.metadata.version("trl"),
            attention=policy.attention,
        )
    except BadInput as error:
        if sampling_engine(settings) == "vllm-colocate" and not settings["vllm_gpu_memory_utilization"]:
            raise BadInput(
                f"no memory plan, and therefore no share for vLLM: {error.message}",
                expected=error.expected,
                hint="--set vllm_gpu_memory_utilization=0.3",
            ) from None
        run.note(f"no memory plan: {error.message}")
        return {}
    run.write_event("plan", plan=plan)
    run.log(f"memory plan: peak {plan['peak'] / 2**30:.1f} of {total / 2**30:.1f} GiB in phase {plan['peak_phase']}")
    if plan["fits"] is False:
        changes = [f"{name}={value}" for remedy in plan["remedies"] for name, value in remedy["set"].items()]
        enough = plan["remedies"] and plan["remedies"][-1]["fits"]
        remedy = f"these settings would: {', '.join(changes)}" if enough else "no known change is enough"
        run.note(f"by the memory plan this does not fit into the GPU's memory; {remedy}")
    if (
        not settings["per_device_train_batch_size"] and plan["per_device_train_batch_size"] < plan["answers"]
    ):  # also where even that may not fit
        settings["per_device_train_batch_size"] = plan["per_device_train_batch_size"]
        run.note(plan["notes"][-1])
    return plan


def has_reference(settings: Mapping[str, Any]) -> bool:
    """Whether TRL compares the policy with a reference policy."""
    return bool(settings["beta"] > 0 or settings["trainer"] == "dpo")


def reference_folder(run: RunDirectory) -> Path:
    """The directory of the tiny model's reference policy."""
    return run.path / "reference"


def save_reference_model(run: RunDirectory, policy: Policy, *, fresh: bool, ranks: Ranks) -> None:
    """Save the tiny model for TRL, which loads the reference policy by name at beta > 0.

    The reference of an adapter is its base, with the adapter disabled; a loaded model has a name already.
    """
    model = policy.model
    if policy.lora or model.config._name_or_path:  # noqa: SLF001
        return
    folder = reference_folder(run)
    if fresh and ranks.is_main:
        model.save_pretrained(folder)
    ranks.barrier()
    model.config._name_or_path = str(folder)  # noqa: SLF001
