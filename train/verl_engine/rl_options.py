"""Our settings as options of verl's main_ppo: PPO and GRPO. Pure; verl_fields.py says where names were read."""

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
    At,
    Options,
    attention,
    engine_dtype,
    lora,
    optimizer,
    optimizer_before_groups,
    refuse_other_attention,
    refuse_other_dtype,
)
from verl_engine.ray_cpus import UNITS, UNITS_USUAL, queue_units
from verl_engine.reward_wrapper import needs_plain_numbers

EXTERNAL_MODULES = Path(__file__).with_name("external_modules")  # imported by the processes of verl
RAY_VARIABLES = "++ray_kwargs.ray_init.runtime_env.env_vars"
LOSSES = {"dapo": "token-mean", "grpo": "seq-mean-token-mean", "dr_grpo": "seq-mean-token-sum-norm"}  # core_algos.py


def rl_options(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    """Data, actor, reference, sampling, algorithm, critic and reward."""
    options = {
        **_rl_data(settings, version, notes),
        **_actor(settings, version, at),
        **_rollout(settings, at),
        **_algorithm(settings),
        "trainer.val_before_train": settings["eval_before"],
        "trainer.max_actor_ckpt_to_keep": settings["keep_checkpoints"],
        "trainer.critic_warmup": 0,
        "trainer.rollout_data_dir": at.answers,
    }
    if settings["task"] == "ppo":
        options |= _critic(settings, version, at)
        options["trainer.max_critic_ckpt_to_keep"] = settings["keep_checkpoints"]  # counted apart from the actor's
    if at.nodes > 1 and version >= FILE_LOGGER:
        # Ray runs before the driver, and the process that logs has Ray's variables, not the driver's.
        options[f"{RAY_VARIABLES}.VERL_FILE_LOGGER_PATH"] = at.metrics
    if fewer := queue_units(version, settings["options"], cpus=at.nodes * at.cpus, gpus=at.nodes * at.gpus):
        options |= fewer
        notes.append(f"TransferQueue: {fewer[UNITS]} of verl's {UNITS_USUAL} units, one CPU each, on {at.cpus} CPUs")
    if settings["reward_function"]:
        path, _, name = settings["reward_function"].rpartition(":")
        path = at.reward_file if needs_plain_numbers(settings["reward_function"], version) else path
        # A group `reward` from 0.7.1; the old name would be moved there with a warning.
        group = "reward.custom_reward_function" if version >= Version("0.7.1") else "custom_reward_function"
        options |= {f"{group}.path": path, f"{group}.name": name}
    return options


def _rl_data(settings: Mapping[str, Any], version: Version, notes: list[str]) -> Options:
    options: Options = {
        "data.max_prompt_length": settings["max_prompt_length"],
        "data.max_response_length": settings["max_completion_length"],
        "data.filter_overlong_prompts": settings["overlong"] == "filter",
        "data.truncation": "left" if settings["overlong"] == "truncate" else "error",
        "data.trust_remote_code": settings["trust_remote_code"],
    }
    if version >= Version("0.6.1"):
        return options | {"data.seed": settings["seed"]}
    notes.append(f"seed: verl {version} has none for PPO; the data's order is torch's own at each start")
    return options


def _actor(settings: Mapping[str, Any], version: Version, at: At) -> Options:
    actor, model, ref = (f"actor_rollout_ref.{part}" for part in ("actor", "model", "ref"))
    in_loss = bool(settings["beta"]) and settings["kl_in"] == "loss"
    passes = settings["logprob_micro_batch"] or settings["micro_batch"]
    options: Options = {
        f"{model}.path": settings["model"],
        f"{model}.trust_remote_code": settings["trust_remote_code"],
        f"{model}.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        **lora(model, settings),
        f"{actor}.strategy": settings["sharding"],
        f"{actor}.ppo_mini_batch_size": settings["mini_batch"],
        f"{actor}.ppo_micro_batch_size_per_gpu": settings["micro_batch"],
        f"{actor}.use_dynamic_bsz": False,
        f"{actor}.ppo_epochs": settings["num_iterations"],
        f"{actor}.grad_clip": settings["max_grad_norm"],
        f"{actor}.clip_ratio": settings["epsilon"],
        f"{actor}.clip_ratio_low": settings["epsilon"],
        f"{actor}.clip_ratio_high": settings["epsilon_high"] or settings["epsilon"],
        f"{actor}.loss_agg_mode": LOSSES[settings["loss_type"]],
        f"{actor}.entropy_coeff": settings["entropy_bonus"],
        f"{actor}.use_kl_loss": in_loss,
        **({f"{actor}.kl_loss_coef": settings["beta"]} if in_loss else {}),
        f"{ref}.log_prob_micro_batch_size_per_gpu": passes,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": passes,
        f"{actor}.fsdp_config.param_offload": settings["offload"] == "all",
        f"{actor}.fsdp_config.optimizer_offload": settings["offload"] != "none",
        f"{ref}.fsdp_config.param_offload": settings["offload"] == "all",
    }
    if version >= Version("0.6.0"):  # the optimizer's and the engine's groups
        options |= {
            **optimizer(f"{actor}.optim", settings, settings["learning_rate"]),
            f"{actor}.fsdp_config.strategy": settings["sharding"],
            f"{ref}.fsdp_config.strategy": settings["sharding"],
        }
    else:
        options |= optimizer_before_groups(f"{actor}.optim", settings, settings["learning_rate"])
    for part in (actor, ref):
        options |= _dtype(f"{part}.fsdp_config", settings["dtype"], version)
    if version >= Version("0.6.1"):
        options |= attention(model, at.attention)
    else:
        refuse_other_attention(at.attention, version)
        options[f"{model}.use_remove_padding"] = True
    if version >= Version("0.7.0"):
        options |= {f"{actor}.data_loader_seed": settings["seed"], f"{actor}.fsdp_config.seed": settings["seed"]}
    return options


def _dtype(group: str, dtype: str, version: Version) -> Options:
    """dp_actor.py of 0.6.1 to 0.7.1 reads fsdp_config.dtype; from 0.8.0 the actor is the engine that SFT has."""
    if version >= ENGINE_DTYPE:
        return engine_dtype(group, dtype)
    if version >= Version("0.6.1"):
        return {f"{group}.dtype": dtype}
    refuse_other_dtype(dtype, version, "0.6.1")
    return {}


def _critic(settings: Mapping[str, Any], version: Version, at: At) -> Options:
    options: Options = {
        "critic.model.path": settings["critic_model"] or settings["model"],
        "critic.model.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        "critic.ppo_micro_batch_size_per_gpu": settings["micro_batch"],
        "critic.forward_micro_batch_size_per_gpu": settings["logprob_micro_batch"] or settings["micro_batch"],
        "critic.grad_clip": settings["max_grad_norm"],
        "critic.strategy": settings["sharding"],
    }
    # Beside the model's options up to 0.7.1, a group of their own from 0.8.0.
    group = "critic.fsdp" if version >= Version("0.8.0") else "critic.model.fsdp_config"
    options |= {
        f"{group}.param_offload": settings["offload"] == "all",
        f"{group}.optimizer_offload": settings["offload"] != "none",
    }
    if version >= Version("0.6.0"):
        options |= optimizer("critic.optim", settings, settings["critic_learning_rate"])
        options[f"{group}.strategy"] = settings["sharding"]
    else:
        options |= optimizer_before_groups("critic.optim", settings, settings["critic_learning_rate"])
    if version >= Version("0.6.1"):
        options |= attention("critic.model", at.attention)
        if at.attention != "flash_attention_2":  # which verl loads the critic by all the same
            variables = {
                # Before the user's own, which Ray's processes would else lose.
                "PYTHONPATH": os.pathsep.join(filter(None, [str(EXTERNAL_MODULES), os.environ.get("PYTHONPATH")])),
                "VERL_USE_EXTERNAL_MODULES": "envdoctor_critic",
                "ENVDOCTOR_CRITIC_ATTENTION": at.attention,
            }
            options |= {f"{RAY_VARIABLES}.{name}": value for name, value in variables.items()}
    if version >= ENGINE_DTYPE:
        return options | engine_dtype(group, settings["dtype"])
    refuse_other_dtype(settings["dtype"], version, str(ENGINE_DTYPE), "the critic ")  # dp_critic.py
    return options


def _rollout(settings: Mapping[str, Any], at: At) -> Options:
    rollout = "actor_rollout_ref.rollout"
    if at.gpus % at.tensor_parallel:
        raise BadInput(
            f"vllm_tensor_parallel = {at.tensor_parallel} on {at.gpus} GPUs a node",
            expected=f"a divisor of {at.gpus}", hint="--set vllm_tensor_parallel=0, which chooses one",
        )  # fmt: skip
    options: Options = {
        f"{rollout}.name": "vllm",  # no default from 0.6.0 on
        f"{rollout}.n": settings["num_generations"],
        f"{rollout}.temperature": settings["temperature"],
        f"{rollout}.top_p": settings["top_p"],
        f"{rollout}.gpu_memory_utilization": settings["vllm_share"],
        f"{rollout}.tensor_model_parallel_size": at.tensor_parallel,
        f"{rollout}.enforce_eager": not settings["vllm_cuda_graphs"],
        f"{rollout}.dtype": settings["dtype"],
    }
    if settings["lora_rank"]:
        # The base's weights are synchronised once: dummy ones would stay (verl's own LoRA guide says so).
        options[f"{rollout}.load_format"] = "safetensors"
    return options


def _algorithm(settings: Mapping[str, Any]) -> Options:
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
