"""The settings as fields of the installed TRL's GRPOConfig. Pure: versions and field names in, arguments out.

A setting that a version lacks is refused, or replaced by an equivalent with a note; none is dropped.
The fields of each version were read from its wheel (0.22.2 to 1.16.0, 2026-11-21).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from checks.batches import (
    check_batches,
    completions_per_generation,
    updates_per_generation,
    vllm_max_length,
)
from checks.engines import ENGINE_SETTINGS, sampling_engine
from checks.fsdp import fsdp_fields
from checks.rollouts import check_rollout_releases
from checks.versions import check_sleep
from settings import BadInput
from trl_config.common import (
    add_passed_fields,
    check_device_map,
    check_fields,
    common_fields,
    describe_renamed,
    run_length,
)
from trl_config.importance_sampling import importance_sampling_fields
from trl_config.loss import loss_fields
from trl_config.versions import InstalledVersions, RunContext

PAGED = ("use_transformers_continuous_batching", "use_transformers_paged")  # renamed in 1.7


def make_grpo_arguments(
    settings: Mapping[str, Any], installed: InstalledVersions, at: RunContext
) -> tuple[dict[str, Any], list[str]]:
    """Keyword arguments for GRPOConfig, and notes."""
    notes: list[str] = []
    check_device_map(settings, at)
    check_rollout_releases(settings, installed.version)
    arguments = {
        **_batches(settings, at.ranks),
        **loss_fields(settings, installed, notes),
        **_generation(settings, installed, at, notes),
        **_trust_remote_code(settings, installed),
        **common_fields(settings, installed, at),
        # From 1.7 TRL adds the load-balancing loss of an MoE model, with the coefficient of its configuration (0.9
        # for gpt-oss). The loss is GRPO's alone, in every version.
        **({"router_aux_loss_coef": 0.0} if installed.has("router_aux_loss_coef") else {}),
    }
    add_passed_fields(arguments, settings, installed)
    arguments |= fsdp_fields(settings, installed.versions, device=at.device, ranks=at.ranks)
    notes += describe_renamed(arguments)
    check_fields(arguments, installed, "GRPOConfig")
    return arguments, notes


def _trust_remote_code(settings: Mapping[str, Any], installed: InstalledVersions) -> dict[str, Any]:
    """The field for models with code of their own, which TRL loads again: for the reference policy, and for vLLM."""
    again = sampling_engine(settings) == "vllm-colocate" or (settings["beta"] > 0 and not settings["r"])
    if not settings["trust_remote_code"] or not again:
        return {}
    if not installed.has("trust_remote_code"):  # none before 1.7
        raise BadInput(
            f"trust_remote_code = true with TRL {installed.trl}, which loads the model again without it",
            expected="TRL 1.7 or newer, or an adapter with beta and vLLM not in this process",
            hint="--set beta=0 --set use_vllm=false",
        )
    return {"trust_remote_code": True}


def _batches(settings: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """The completions of a generation, and the micro-batches of an optimizer step."""
    per_gpu, micro = check_batches(settings, ranks)
    _check_save_steps(settings, ranks)
    sampled = completions_per_generation(settings, ranks)
    return run_length(settings) | {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": per_gpu // micro,
        **({"generation_batch_size": sampled} if sampled != per_gpu * ranks else {}),
        "num_generations": settings["num_generations"],
        "num_iterations": settings["num_iterations"],
    }


def _check_save_steps(settings: Mapping[str, Any], ranks: int) -> None:
    every, updates = settings["save_steps"], updates_per_generation(settings, ranks)
    if every % updates:
        raise BadInput(
            f"save_steps = {every} with {updates} optimizer steps per generation",
            expected="a multiple: a checkpoint does not contain the completions of a started generation",
            hint=f"--set save_steps={math.ceil(every / updates) * updates}",
        )


def _generation(
    settings: Mapping[str, Any], installed: InstalledVersions, at: RunContext, notes: list[str]
) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "max_completion_length": at.completion,
        "temperature": settings["temperature"],
        "top_p": settings["top_p"],
    }
    if installed.has("max_prompt_length"):
        # Up to 0.25 the default truncates prompts at 512 tokens; 0.26 and 0.27 only warn. For every version,
        # data.lengths fits the prompts before training.
        arguments["max_prompt_length"] = None
    kind = sampling_engine(settings)
    if kind.startswith("vllm"):
        arguments |= importance_sampling_fields(settings, installed, notes)
    if kind == "transformers":
        return arguments
    if at.device == "cpu":
        setting = ENGINE_SETTINGS[kind]
        off = setting.partition(" ")[0]
        raise BadInput(f"{setting} without a GPU", expected="a GPU", hint=f"--set {off}=false")
    if kind == "transformers-paged":
        return arguments | _paged(settings, installed, at, notes)
    if kind == "transformers-graphs":  # TRL calls `generate`, which the patch replaces
        return arguments
    if kind == "vllm-server":
        return arguments | _server(settings)
    return arguments | _colocated(settings, installed, at, notes)


def _paged(
    settings: Mapping[str, Any], installed: InstalledVersions, at: RunContext, notes: list[str]
) -> dict[str, Any]:
    if at.autocast and not settings["r"]:
        # 0.22.2 to 1.16: unwrapped_model.to(torch.bfloat16) before generate_batch, without a conversion back.
        notes.append(
            f"use_transformers_continuous_batching: TRL converts all weights to {at.autocast} before it samples, and "
            "keeps them so: small updates are lost; without it they stay in float32"
        )
    return {next((name for name in PAGED if installed.has(name)), PAGED[0]): True}


def _server(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = ["vllm_server_base_url"] if settings["vllm_server_base_url"] else ["vllm_server_host", "vllm_server_port"]
    address = {name: settings[name] for name in (*names, "vllm_server_timeout")}
    return {"use_vllm": True, "vllm_mode": "server"} | address


def _colocated(
    settings: Mapping[str, Any], installed: InstalledVersions, at: RunContext, notes: list[str]
) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "use_vllm": True,
        "vllm_mode": "colocate",  # the default was "server" up to 0.29
        "vllm_gpu_memory_utilization": at.vllm_share,
        "vllm_tensor_parallel_size": settings["vllm_tensor_parallel_size"],
        "generation_kwargs": {"detokenize": False},  # TRL reads the tokens alone
    }
    length = vllm_max_length(settings, at.longest_prompt, at.completion)
    if settings["environment_factory"] and not settings["vllm_max_model_length"]:
        notes.append("vllm_max_model_length: that of the model, because `reset` may add text to a prompt")
    elif installed.has("vllm_max_model_length"):
        arguments["vllm_max_model_length"] = length
    else:
        # Up to 0.25 vLLM's length is max_prompt_length + max_completion_length; no prompt is longer than that.
        arguments["max_prompt_length"] = length - at.completion
        notes.append(f"vllm_max_model_length: TRL {installed.trl} has no such field; max_prompt_length sets {length}")
    if settings["vllm_enable_sleep_mode"]:
        check_sleep(settings, str(installed.trl))
        arguments["vllm_enable_sleep_mode"] = True
    return arguments
