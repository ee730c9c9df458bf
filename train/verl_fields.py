"""Our settings as options of the installed verl. Pure: a version and what the machine has in, options out.

What a version cannot do is refused, or replaced by what does the same and said in a note; nothing is dropped.
What each version has was read in its wheel (0.4.1, 0.5.0, 0.6.0, 0.6.1, 0.7.0, 0.7.1, 0.8.0, 0.9.0, 0.9.1;
2026-11-21): verl/trainer/config for the names, the trainers and workers for what is hard-wired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from settings import BadInput

OLDEST = Version("0.4.1")  # the first with verl/model_merger
# trainer/fsdp_sft_trainer.py and its config sft_trainer.yaml are in 0.7.0 and no longer in 0.7.1. sft_trainer.py, on
# the engines that PPO has, is there from 0.6.0; its numbers are the old trainer's from 0.7.1 on, where both may be.
ENGINE_SFT = Version("0.7.1")
# utils/tracking.py, supported_backend: "file" and "trackio" from 0.6.0.
FILE_LOGGER = Version("0.6.0")
REPORTERS = {"tensorboard": "0.4.1", "wandb": "0.4.1", "mlflow": "0.4.1", "swanlab": "0.4.1", "trackio": "0.6.0"}
LOSSES = {"dapo": "token-mean", "grpo": "seq-mean-token-mean", "dr_grpo": "seq-mean-token-sum-norm"}  # core_algos.py
PLAIN = re.compile(r"[A-Za-z_/~][A-Za-z0-9_./@~-]*")  # what Hydra's grammar takes without quotes

Options = dict[str, Any]


@dataclass(frozen=True)
class At:
    """What is known when the options are made. `attention` is none of ours any more: auto was decided."""

    train_file: str = "data/train.parquet"
    held_out_file: str = "data/held_out.parquet"
    checkpoints: str = "checkpoints"
    project: str = "envdoctor"
    experiment: str = "run"
    nodes: int = 1
    gpus: int = 1
    attention: str = "flash_attention_2"
    tensor_parallel: int = 1
    resume: str = ""  # a checkpoint's folder; empty: a fresh start


def sft_module(version: Version) -> tuple[str, str]:
    """(module, name of its configuration) of the SFT trainer."""
    if version >= ENGINE_SFT:
        return "verl.trainer.sft_trainer", "sft_trainer_engine"
    return "verl.trainer.fsdp_sft_trainer", "sft_trainer"


def trainer_module(task: str, version: Version) -> tuple[str, str]:
    """(module, name of its configuration) of a task's trainer."""
    return sft_module(version) if task == "sft" else ("verl.trainer.main_ppo", "ppo_trainer")


def verl_options(settings: Mapping[str, Any], version: Version, at: At) -> tuple[Options, list[str]]:
    """Options by verl's names, and what to tell about them."""
    if version < OLDEST:
        raise BadInput(
            f"verl {version} is installed", expected=f"verl {OLDEST} or newer, which has verl.model_merger",
            hint="envdoctor install --profile verl-8gpu",
        )  # fmt: skip
    check_batches(settings, at.nodes * at.gpus)
    notes: list[str] = []
    options = _run(settings, version, at, notes)
    if settings["task"] != "sft":
        options |= _rl(settings, version, at, notes)
    elif version >= ENGINE_SFT:
        options |= _sft_engine(settings, version, at, notes)
    else:
        options |= _sft_old(settings, version, at, notes)
    return options, notes


def check_batches(settings: Mapping[str, Any], gpus: int) -> None:
    """verl splits a step's answers over the GPUs, and each GPU's into passes, both without a rest."""
    answers = settings["num_generations"] if settings["task"] != "sft" else 1
    named = [("prompts_per_step", settings["prompts_per_step"], 1)]
    if settings["task"] != "sft":
        named.append(("mini_batch", settings["mini_batch"], settings["micro_batch"]))
    else:
        named = [("prompts_per_step", settings["prompts_per_step"], settings["micro_batch"])]
    for name, prompts, micro in named:
        unit = gpus * micro // math.gcd(gpus * micro, answers)
        if prompts % unit:
            of = f" in passes of micro_batch = {micro}" if micro > 1 else ""
            raise BadInput(
                f"{name} = {prompts}{f' prompts of {answers} answers' if answers > 1 else ''} on {gpus} GPUs{of}",
                expected=f"a multiple of {unit}",
                hint=f"--set {name}={math.ceil(prompts / unit) * unit}",
            )


def _run(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    """What both kinds of trainers name alike."""
    return {
        "data.train_files": at.train_file,
        "data.val_files": at.held_out_file,
        "data.train_batch_size": settings["prompts_per_step"],
        "trainer.total_epochs": settings["epochs"],
        "trainer.total_training_steps": settings["steps"] or None,
        "trainer.save_freq": settings["save_every"] or -1,
        "trainer.test_freq": settings["eval_every"] or -1,
        "trainer.default_local_dir": at.checkpoints,
        "trainer.project_name": at.project,
        "trainer.experiment_name": at.experiment,
        "trainer.logger": loggers(settings["report_to"], version),
        "trainer.nnodes": at.nodes,
        "trainer.n_gpus_per_node": at.gpus,
        **_resume(settings["task"], version, at, notes),
    }


def loggers(report_to: list[str], version: Version) -> list[str]:
    """Who is told the numbers. The console always: up to 0.5.0 nothing else can be read back."""
    for name in report_to:
        if version < Version(REPORTERS.get(name, "0")):
            raise BadInput(
                f"report_to = {name} with verl {version}", expected=f"verl {REPORTERS[name]} or newer for {name}",
                hint="--set report_to=tensorboard",
            )  # fmt: skip
    return ["console", *(["file"] if version >= FILE_LOGGER else []), *report_to]


def _resume(task: str, version: Version, at: At, notes: list[str]) -> Options:
    if task == "sft" and version < Version("0.5.0"):  # its trainer saves a Hugging Face model and loads nothing
        if at.resume:
            raise BadInput(
                f"--resume with verl {version}, whose SFT trainer saves weights alone",
                expected="verl 0.5.0 or newer",
                hint=f"train on from the weights: --set model={at.resume}",
            )
        notes.append(f"verl {version}'s SFT trainer keeps no optimizer state: this run cannot be resumed")
        return {}
    # "auto" would take what lies there even for a fresh start.
    if not at.resume:
        return {"trainer.resume_mode": "disable"}
    return {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": at.resume}


# --- Supervised fine-tuning


def _sft_data(settings: Mapping[str, Any]) -> Options:
    if settings["overlong"] == "filter":
        raise BadInput(
            "overlong = filter: verl's SFT trainer refuses a longer row or cuts it",
            expected="refuse or truncate", hint="--set overlong=truncate, or a larger --set max_seq_length",
        )  # fmt: skip
    return {
        "data.micro_batch_size_per_gpu": settings["micro_batch"],
        "data.max_length": settings["max_seq_length"],
        "data.truncation": "right" if settings["overlong"] == "truncate" else "error",
        "trainer.seed": settings["seed"],
    }


def _sft_old(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    """fsdp_sft_trainer.py: prompt and response out of extra_info, FlashAttention 2, bfloat16, cosine."""
    _refuse_other_attention(at.attention, version)
    for name, value, only in (
        ("dtype", settings["dtype"], "bfloat16"),
        ("lr_schedule", settings["lr_schedule"], "cosine"),
    ):
        if value != only:
            raise BadInput(
                f"{name} = {value} with verl {version}, whose SFT trainer has {only} alone",
                expected=f"verl {ENGINE_SFT} or newer for {value}", hint=f"--set {name}={only}",
            )  # fmt: skip
    if settings["offload"] == "optimizer":
        raise BadInput(
            f"offload = optimizer with verl {version}, whose SFT trainer offloads all or nothing",
            expected="none or all", hint="--set offload=all",
        )  # fmt: skip
    if version < Version("0.5.0"):  # the option is there, with "TODO" beside it, and nothing reads it
        notes.append(f"keep_checkpoints: verl {version}'s SFT trainer removes none")
    # The warm-up's name changed in 0.6.1, when the optimizer's options became a group of their own.
    warmup = "optim.lr_warmup_steps_ratio" if version >= Version("0.6.1") else "optim.warmup_steps_ratio"
    return {
        **_sft_data(settings),
        "data.prompt_key": "extra_info",
        "data.response_key": "extra_info",
        "data.prompt_dict_keys": ["question"],
        "data.response_dict_keys": ["answer"],
        "model.partial_pretrain": settings["model"],
        "model.trust_remote_code": settings["trust_remote_code"],
        "model.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        "model.strategy": settings["sharding"],
        "model.fsdp_config.cpu_offload": settings["offload"] == "all",
        "model.fsdp_config.offload_params": settings["offload"] == "all",
        **_lora("model", settings),
        "optim.lr": settings["learning_rate"],
        "optim.weight_decay": settings["weight_decay"],
        "optim.clip_grad": settings["max_grad_norm"],
        "optim.lr_scheduler": "cosine",
        warmup: settings["lr_warmup_share"],
        "trainer.max_ckpt_to_keep": settings["keep_checkpoints"],
    }


def _sft_engine(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    """sft_trainer.py: messages, the engines of PPO. extra_info holds the same question and answer."""
    notes.append(f"verl {version} trains on the column messages; question and answer are in extra_info as well")
    return {
        **_sft_data(settings),
        "data.messages_key": "messages",
        # Packed by tokens unless told otherwise: micro_batch would do nothing.
        "data.use_dynamic_bsz": False,
        "model.path": settings["model"],
        "model.trust_remote_code": settings["trust_remote_code"],
        "model.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        **_attention("model", at.attention),
        **_lora("model", settings),
        **_optimizer("optim", settings, settings["learning_rate"]),
        "engine.strategy": settings["sharding"],
        "engine.dtype": settings["dtype"],
        "engine.seed": settings["seed"],
        "engine.param_offload": settings["offload"] == "all",
        "engine.optimizer_offload": settings["offload"] != "none",
        "trainer.max_ckpt_to_keep": settings["keep_checkpoints"],
    }


# --- PPO and GRPO


def _rl(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    options = {
        **_rl_data(settings, version, notes),
        **_actor(settings, version, at, notes),
        **_rollout(settings, at),
        **_algorithm(settings),
        "trainer.val_before_train": settings["eval_before"],
        "trainer.max_actor_ckpt_to_keep": settings["keep_checkpoints"],
        "trainer.critic_warmup": 0,
    }
    if settings["task"] == "ppo":
        options |= _critic(settings, version, at)
    if settings["reward_function"]:
        path, _, name = settings["reward_function"].rpartition(":")
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


def _actor(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    actor, model, ref = (f"actor_rollout_ref.{part}" for part in ("actor", "model", "ref"))
    in_loss = bool(settings["beta"]) and settings["kl_in"] == "loss"
    passes = settings["logprob_micro_batch"] or settings["micro_batch"]
    options: Options = {
        f"{model}.path": settings["model"],
        f"{model}.trust_remote_code": settings["trust_remote_code"],
        f"{model}.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        **_lora(model, settings),
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
            **_optimizer(f"{actor}.optim", settings, settings["learning_rate"]),
            f"{actor}.fsdp_config.strategy": settings["sharding"],
            f"{ref}.fsdp_config.strategy": settings["sharding"],
        }
    else:
        options |= _optimizer_before_groups(f"{actor}.optim", settings, settings["learning_rate"])
    if version >= Version("0.6.1"):
        options |= {f"{part}.fsdp_config.dtype": settings["dtype"] for part in (actor, ref)}
        options |= _attention(model, at.attention)
    else:
        _refuse_other_attention(at.attention, version)
        _refuse_other_dtype(settings["dtype"], version)
        options[f"{model}.use_remove_padding"] = True
    if version >= Version("0.7.0"):
        options |= {f"{actor}.data_loader_seed": settings["seed"], f"{actor}.fsdp_config.seed": settings["seed"]}
    return options


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
        options |= _optimizer("critic.optim", settings, settings["critic_learning_rate"])
        options[f"{group}.strategy"] = settings["sharding"]
    else:
        options |= _optimizer_before_groups("critic.optim", settings, settings["critic_learning_rate"])
    if version >= Version("0.6.1"):
        options |= _attention("critic.model", at.attention)
        options[f"{group}.dtype"] = settings["dtype"]
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


# --- Parts that several have


def _lora(group: str, settings: Mapping[str, Any]) -> Options:
    if not settings["lora_rank"]:
        return {}
    targets = settings["lora_targets"]
    return {
        f"{group}.lora_rank": settings["lora_rank"],
        f"{group}.lora_alpha": settings["lora_alpha"],
        f"{group}.target_modules": "all-linear" if targets == ["all-linear"] else targets,
    }


def _optimizer(group: str, settings: Mapping[str, Any], rate: float) -> Options:
    return {
        f"{group}.lr": rate,
        f"{group}.weight_decay": settings["weight_decay"],
        f"{group}.clip_grad": settings["max_grad_norm"],
        f"{group}.lr_scheduler_type": settings["lr_schedule"],
        f"{group}.lr_warmup_steps_ratio": settings["lr_warmup_share"],
    }


def _optimizer_before_groups(group: str, settings: Mapping[str, Any], rate: float) -> Options:
    """Up to 0.5.0 the schedule is named by its warm-up."""
    return {
        f"{group}.lr": rate,
        f"{group}.weight_decay": settings["weight_decay"],
        f"{group}.warmup_style": settings["lr_schedule"],
        f"{group}.lr_warmup_steps_ratio": settings["lr_warmup_share"],
    }


def _attention(group: str, attention: str) -> Options:
    """Rows without padding go through flash-attn's functions; the others need padded batches."""
    return {
        f"++{group}.override_config.attn_implementation": attention,
        f"{group}.use_remove_padding": attention.startswith("flash_attention"),
    }


def _refuse_other_attention(attention: str, version: Version) -> None:
    if attention != "flash_attention_2":
        raise BadInput(
            f"attention = {attention} with verl {version}, in whose workers flash_attention_2 is hard-wired",
            expected="flash-attn in the environment, or a newer verl (0.6.1 for PPO and GRPO, 0.7.1 for SFT)",
            hint="envdoctor install --profile verl-8gpu",
        )


def _refuse_other_dtype(dtype: str, version: Version) -> None:
    if dtype != "bfloat16":
        raise BadInput(
            f"dtype = {dtype} with verl {version}, which computes in bfloat16",
            expected="verl 0.6.1 or newer", hint="--set dtype=bfloat16",
        )  # fmt: skip


def hydra_value(value: Any) -> str:
    r"""A value as Hydra's grammar reads it. Samples: True -> true; None -> null; "a b's" -> 'a b\'s'; [1] -> [1]."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(hydra_value, value))}]"
    text = str(value)
    if not isinstance(value, str) or (
        PLAIN.fullmatch(text) and text.lower() not in ("true", "false", "null", "nan", "inf")
    ):
        return text
    # A backslash stands for itself unless a quote follows.
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text) + "'"


def overrides(options: Options, own: list[str]) -> list[str]:
    """What stands on verl's command line; a person's own options come last, and so count."""
    return [*(f"{name}={hydra_value(value)}" for name, value in options.items()), *own]
