"""Translate the settings into options of verl's SFT trainers. config_options.py gives the source of the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version
from settings import BadInput
from verl_engine.options import (
    ENGINE_DTYPE,
    ENGINE_SFT,
    TRACKED_SFT,
    LaunchContext,
    Options,
    attention_options,
    check_hard_coded_attention,
    check_hard_coded_dtype,
    engine_dtype_options,
    lora_options,
    optimizer_options,
)


def _data_options(settings: Mapping[str, Any]) -> Options:
    if settings["overlong"] == "filter":
        raise BadInput(
            "overlong = filter: verl's SFT trainer can only refuse or truncate longer rows",
            expected="refuse or truncate", hint="--set overlong=truncate, or a larger --set max_seq_length",
        )  # fmt: skip
    return {
        "data.micro_batch_size_per_gpu": settings["per_device_train_batch_size"],
        "data.max_length": settings["max_seq_length"],
        "data.truncation": "right" if settings["overlong"] == "truncate" else "error",
        "trainer.seed": settings["seed"],
    }


def fsdp_sft_options(
    settings: Mapping[str, Any], version: Version, context: LaunchContext, notes: list[str]
) -> Options:
    """Return the options of fsdp_sft_trainer.py: rows in extra_info, FlashAttention 2, bfloat16, cosine schedule."""
    check_hard_coded_attention(context.attention, version)
    check_hard_coded_dtype(settings["dtype"], version, str(ENGINE_DTYPE))
    if settings["lr_scheduler_type"] != "cosine":
        raise BadInput(
            f"lr_scheduler_type = {settings['lr_scheduler_type']} with verl {version}, whose SFT trainer supports "
            "only cosine",
            expected=f"verl {ENGINE_SFT} or newer for {settings['lr_scheduler_type']}",
            hint="--set lr_scheduler_type=cosine",
        )  # fmt: skip
    if settings["offload"] == "optimizer":
        raise BadInput(
            f"offload = optimizer with verl {version}, whose SFT trainer offloads all or nothing",
            expected="none or all", hint="--set offload=all",
        )  # fmt: skip
    if version < TRACKED_SFT:
        if settings["r"] and settings["merge"]:  # save_pretrained of the PEFT model: no base, no shards
            raise BadInput(
                f"merge = true with r = {settings['r']} and verl {version}, whose SFT trainer saves "
                "only the adapter",
                expected=f"verl {TRACKED_SFT} or newer", hint="--set merge=false",
            )  # fmt: skip
        # The option exists with a comment "TODO", and is not read.
        notes.append(f"save_total_limit: verl {version}'s SFT trainer never removes checkpoints")
    # Renamed in 0.6.1, when the optimizer's options became a group of their own.
    warmup = "optim.lr_warmup_steps_ratio" if version >= Version("0.6.1") else "optim.warmup_steps_ratio"
    return {
        **_data_options(settings),
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
        **lora_options("model", settings),
        "optim.lr": settings["learning_rate"],
        "optim.weight_decay": settings["weight_decay"],
        "optim.clip_grad": settings["max_grad_norm"],
        "optim.lr_scheduler": "cosine",
        warmup: settings["warmup_ratio"],
        "trainer.max_ckpt_to_keep": settings["save_total_limit"],
    }


def engine_sft_options(
    settings: Mapping[str, Any], version: Version, context: LaunchContext, notes: list[str]
) -> Options:
    """Return the options of sft_trainer.py, which reads messages and uses the engines of PPO."""
    if version < ENGINE_DTYPE:
        check_hard_coded_dtype(settings["dtype"], version, str(ENGINE_DTYPE))
    notes.append(f"verl {version} trains on the column messages; extra_info contains the same question and answer")
    return {
        **_data_options(settings),
        "data.messages_key": "messages",
        # The default packs rows by tokens, and per_device_train_batch_size would have no effect.
        "data.use_dynamic_bsz": False,
        "model.path": settings["model"],
        "model.trust_remote_code": settings["trust_remote_code"],
        "model.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        **attention_options("model", context.attention),
        **lora_options("model", settings),
        **optimizer_options("optim", settings, settings["learning_rate"]),
        "engine.strategy": settings["sharding"],
        **engine_dtype_options("engine", settings["dtype"]),
        "engine.seed": settings["seed"],
        "engine.param_offload": settings["offload"] == "all",
        "engine.optimizer_offload": settings["offload"] != "none",
        "trainer.max_ckpt_to_keep": settings["save_total_limit"],
    }
