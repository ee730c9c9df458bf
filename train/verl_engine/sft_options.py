"""Our settings as options of verl's SFT trainers. Pure; see verl_fields.py for where each name was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version
from settings import BadInput
from verl_engine.options import (
    ENGINE_DTYPE,
    ENGINE_SFT,
    TRACKED_SFT,
    At,
    Options,
    attention,
    engine_dtype,
    lora,
    optimizer,
    refuse_other_attention,
    refuse_other_dtype,
)


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


def sft_old(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    """fsdp_sft_trainer.py: prompt and response out of extra_info, FlashAttention 2, bfloat16, cosine."""
    refuse_other_attention(at.attention, version)
    refuse_other_dtype(settings["dtype"], version, str(ENGINE_DTYPE))
    if settings["lr_schedule"] != "cosine":
        raise BadInput(
            f"lr_schedule = {settings['lr_schedule']} with verl {version}, whose SFT trainer has cosine alone",
            expected=f"verl {ENGINE_SFT} or newer for {settings['lr_schedule']}", hint="--set lr_schedule=cosine",
        )  # fmt: skip
    if settings["offload"] == "optimizer":
        raise BadInput(
            f"offload = optimizer with verl {version}, whose SFT trainer offloads all or nothing",
            expected="none or all", hint="--set offload=all",
        )  # fmt: skip
    if version < TRACKED_SFT:
        if settings["lora_rank"] and settings["merge"]:  # save_pretrained of peft's model: no base, no shards
            raise BadInput(
                f"merge = true with lora_rank = {settings['lora_rank']} and verl {version}, whose SFT trainer saves "
                "the adapter alone",
                expected=f"verl {TRACKED_SFT} or newer", hint="--set merge=false",
            )  # fmt: skip
        # The option is there, with "TODO" beside it, and nothing reads it.
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
        **lora("model", settings),
        "optim.lr": settings["learning_rate"],
        "optim.weight_decay": settings["weight_decay"],
        "optim.clip_grad": settings["max_grad_norm"],
        "optim.lr_scheduler": "cosine",
        warmup: settings["lr_warmup_share"],
        "trainer.max_ckpt_to_keep": settings["keep_checkpoints"],
    }


def sft_engine(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    """sft_trainer.py: messages, the engines of PPO. extra_info holds the same question and answer."""
    if version < ENGINE_DTYPE:
        refuse_other_dtype(settings["dtype"], version, str(ENGINE_DTYPE))
    notes.append(f"verl {version} trains on the column messages; question and answer are in extra_info as well")
    return {
        **_sft_data(settings),
        "data.messages_key": "messages",
        # Packed by tokens unless told otherwise: micro_batch would do nothing.
        "data.use_dynamic_bsz": False,
        "model.path": settings["model"],
        "model.trust_remote_code": settings["trust_remote_code"],
        "model.enable_gradient_checkpointing": settings["gradient_checkpointing"],
        **attention("model", at.attention),
        **lora("model", settings),
        **optimizer("optim", settings, settings["learning_rate"]),
        "engine.strategy": settings["sharding"],
        **engine_dtype("engine", settings["dtype"]),
        "engine.seed": settings["seed"],
        "engine.param_offload": settings["offload"] == "all",
        "engine.optimizer_offload": settings["offload"] != "none",
        "trainer.max_ckpt_to_keep": settings["keep_checkpoints"],
    }
