"""Translate the settings into options of main_ppo: PPO and GRPO. config_options.py gives the source of the names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version
from settings import BadInput
from verl_engine.options import (
    ENGINE_DTYPE,
    FILE_LOGGER,
    LaunchContext,
    Options,
    attention_options,
    check_hard_coded_attention,
    check_hard_coded_dtype,
    engine_dtype_options,
    lora_options,
    old_optimizer_options,
    optimizer_options,
)
from verl_engine.ray_cpus import DEFAULT_UNITS, UNITS_OPTION, queue_units
from verl_engine.reward_wrapper import needs_wrapper

EXTERNAL_MODULES = Path(__file__).with_name("external_modules")  # imported by the processes of verl
RAY_VARIABLES = "++ray_kwargs.ray_init.runtime_env.env_vars"
LOSSES = {"dapo": "token-mean", "grpo": "seq-mean-token-mean", "dr_grpo": "seq-mean-token-sum-norm"}  # core_algos.py


def rl_options(settings: Mapping[str, Any], version: Version, context: LaunchContext, notes: list[str]) -> Options:
    """Return the options of data, actor, reference model, rollout, algorithm, critic and reward."""
    options = {
        **_data_options(settings, version, notes),
        **_actor_options(settings, version, context),
        **_rollout_options(settings, context),
        **_algorithm_options(settings),
        "trainer.val_before_train": settings["eval_before"],
        "trainer.max_actor_ckpt_to_keep": settings["save_total_limit"],
        "trainer.critic_warmup": 0,
        "trainer.rollout_data_dir": context.rollout_folder,
    }
    if settings["task"] == "ppo":
        options |= _critic_options(settings, version, context)
        options["trainer.max_critic_ckpt_to_keep"] = settings["save_total_limit"]  # verl counts them separately
    if context.nodes > 1 and version >= FILE_LOGGER:
        # Ray starts before the driver, so the process that logs has Ray's environment and not the driver's.
        options[f"{RAY_VARIABLES}.VERL_FILE_LOGGER_PATH"] = context.metrics
    if units := queue_units(
        version, settings["options"], cpus=context.nodes * context.cpus, gpus=context.nodes * context.gpus
    ):
        options |= units
        notes.append(
            f"TransferQueue: {units[UNITS_OPTION]} storage units with one CPU each instead of {DEFAULT_UNITS}, on "
            f"{context.cpus} CPUs"
        )
    if settings["reward_function"]:
        path, _, name = settings["reward_function"].rpartition(":")
        path = context.reward_file if needs_wrapper(settings["reward_function"], version) else path
        # 0.7.1 moved it to the group `reward`, and warns about the old name.
        group = "reward.custom_reward_function" if version >= Version("0.7.1") else "custom_reward_function"
        options |= {f"{group}.path": path, f"{group}.name": name}
    return options


def _data_options(settings: Mapping[str, Any], version: Version, notes: list[str]) -> Options:
    options: Options = {
        "data.max_prompt_length": settings["max_prompt_length"],
        "data.max_response_length": settings["max_completion_length"],
        "data.filter_overlong_prompts": settings["overlong"] == "filter",
        "data.truncation": "left" if settings["overlong"] == "truncate" else "error",
        "data.trust_remote_code": settings["trust_remote_code"],
    }
    if version >= Version("0.6.1"):
        return options | {"data.seed": settings["seed"]}
    notes.append(f"seed: verl {version} has no seed for PPO, so the order of the data differs between runs")
    return options


def _actor_options(settings: Mapping[str, Any], version: Version, context: LaunchContext) -> Options:
    actor, model, ref = (f"actor_rollout_ref.{part}" for part in ("actor", "model", "ref"))
    in_loss = bool(settings["beta"]) and settings["kl_in"] == "loss"
    logprob_batch = settings["logprob_micro_batch"] or settings["per_device_train_batch_size"]
    options: Options = {
        f"{model}.path": settings["model"],
        f"{model}.trust_remote_code": settings["trust_remote_code"],
        f"{model}.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        **lora_options(model, settings),
        f"{actor}.strategy": settings["sharding"],
        f"{actor}.ppo_mini_batch_size": settings["mini_batch"],
        f"{actor}.ppo_micro_batch_size_per_gpu": settings["per_device_train_batch_size"],
        f"{actor}.use_dynamic_bsz": False,
        f"{actor}.ppo_epochs": settings["num_iterations"],
        f"{actor}.grad_clip": settings["max_grad_norm"],
        f"{actor}.clip_ratio": settings["epsilon"],
        f"{actor}.clip_ratio_low": settings["epsilon"],
        f"{actor}.clip_ratio_high": settings["epsilon_high"] or settings["epsilon"],
        f"{actor}.loss_agg_mode": LOSSES[settings["loss_type"]],
        f"{actor}.entropy_coeff": settings["entropy_coef"],
        f"{actor}.use_kl_loss": in_loss,
        **({f"{actor}.kl_loss_coef": settings["beta"]} if in_loss else {}),
        f"{ref}.log_prob_micro_batch_size_per_gpu": logprob_batch,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": logprob_batch,
        f"{actor}.fsdp_config.param_offload": settings["offload"] == "all",
        f"{actor}.fsdp_config.optimizer_offload": settings["offload"] != "none",
        f"{ref}.fsdp_config.param_offload": settings["offload"] == "all",
    }
    if version >= Version("0.6.0"):  # groups for the optimizer and the engine
        options |= {
            **optimizer_options(f"{actor}.optim", settings, settings["learning_rate"]),
            f"{actor}.fsdp_config.strategy": settings["sharding"],
            f"{ref}.fsdp_config.strategy": settings["sharding"],
        }
    else:
        options |= old_optimizer_options(f"{actor}.optim", settings, settings["learning_rate"])
    for part in (actor, ref):
        options |= _actor_dtype_options(f"{part}.fsdp_config", settings["dtype"], version)
    if version >= Version("0.6.1"):
        options |= attention_options(model, context.attention)
    else:
        check_hard_coded_attention(context.attention, version)
        options[f"{model}.use_remove_padding"] = True
    if version >= Version("0.7.0"):
        options |= {f"{actor}.data_loader_seed": settings["seed"], f"{actor}.fsdp_config.seed": settings["seed"]}
    return options


def _actor_dtype_options(group: str, dtype: str, version: Version) -> Options:
    """dp_actor.py of 0.6.1 to 0.7.1 reads fsdp_config.dtype; from 0.8.0 on the actor uses the engine of SFT."""
    if version >= ENGINE_DTYPE:
        return engine_dtype_options(group, dtype)
    if version >= Version("0.6.1"):
        return {f"{group}.dtype": dtype}
    check_hard_coded_dtype(dtype, version, "0.6.1")
    return {}


def _critic_options(settings: Mapping[str, Any], version: Version, context: LaunchContext) -> Options:
    options: Options = {
        "critic.model.path": settings["critic_model"] or settings["model"],
        "critic.model.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        "critic.ppo_micro_batch_size_per_gpu": settings["per_device_train_batch_size"],
        "critic.forward_micro_batch_size_per_gpu": settings["logprob_micro_batch"]
        or settings["per_device_train_batch_size"],
        "critic.grad_clip": settings["max_grad_norm"],
        "critic.strategy": settings["sharding"],
    }
    # Part of the model's options up to 0.7.1, a separate group from 0.8.0 on.
    group = "critic.fsdp" if version >= Version("0.8.0") else "critic.model.fsdp_config"
    options |= {
        f"{group}.param_offload": settings["offload"] == "all",
        f"{group}.optimizer_offload": settings["offload"] != "none",
    }
    if version >= Version("0.6.0"):
        options |= optimizer_options("critic.optim", settings, settings["critic_learning_rate"])
        options[f"{group}.strategy"] = settings["sharding"]
    else:
        options |= old_optimizer_options("critic.optim", settings, settings["critic_learning_rate"])
    if version >= Version("0.6.1"):
        options |= attention_options("critic.model", context.attention)
        # verl hard-codes FlashAttention 2 for the critic; the external module replaces it.
        if context.attention != "flash_attention_2":
            variables = {
                # Keep the user's PYTHONPATH, which this value replaces in Ray's processes.
                "PYTHONPATH": os.pathsep.join(filter(None, [str(EXTERNAL_MODULES), os.environ.get("PYTHONPATH")])),
                "VERL_USE_EXTERNAL_MODULES": "envdoctor_critic",
                "ENVDOCTOR_CRITIC_ATTENTION": context.attention,
            }
            options |= {f"{RAY_VARIABLES}.{name}": value for name, value in variables.items()}
    if version >= ENGINE_DTYPE:
        return options | engine_dtype_options(group, settings["dtype"])
    check_hard_coded_dtype(settings["dtype"], version, str(ENGINE_DTYPE), "the critic ")  # dp_critic.py
    return options


def _rollout_options(settings: Mapping[str, Any], context: LaunchContext) -> Options:
    rollout = "actor_rollout_ref.rollout"
    if context.gpus % context.tensor_parallel:
        raise BadInput(
            f"vllm_tensor_parallel_size = {context.tensor_parallel} on {context.gpus} GPUs per node",
            expected=f"a divisor of {context.gpus}", hint="--set vllm_tensor_parallel_size=0",
        )  # fmt: skip
    options: Options = {
        f"{rollout}.name": "vllm",  # required from 0.6.0 on
        f"{rollout}.n": settings["num_generations"],
        f"{rollout}.temperature": settings["temperature"],
        f"{rollout}.top_p": settings["top_p"],
        f"{rollout}.gpu_memory_utilization": settings["vllm_gpu_memory_utilization"],
        f"{rollout}.tensor_model_parallel_size": context.tensor_parallel,
        f"{rollout}.enforce_eager": not settings["vllm_cuda_graphs"],
        f"{rollout}.dtype": settings["dtype"],
    }
    if settings["r"]:
        # Base weights are synchronised only once, so dummy weights would remain (verl's LoRA guide).
        options[f"{rollout}.load_format"] = "safetensors"
    return options


def _algorithm_options(settings: Mapping[str, Any]) -> Options:
    in_reward = bool(settings["beta"]) and settings["kl_in"] == "reward"
    options: Options = {
        "algorithm.adv_estimator": "gae" if settings["task"] == "ppo" else "grpo",
        "algorithm.use_kl_in_reward": in_reward,
    }
    if in_reward:
        options["algorithm.kl_ctrl.kl_coef"] = settings["beta"]
    if settings["task"] == "ppo":
        return options | {"algorithm.gamma": settings["gamma"], "algorithm.lam": settings["gae_lambda"]}
    return options | {"algorithm.norm_adv_by_std_in_grpo": settings["scale_rewards"]}
