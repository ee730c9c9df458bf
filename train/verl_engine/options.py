"""What the options of several of verl's trainers have in common, and how an option is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from settings import BadInput

# trainer/fsdp_sft_trainer.py and its config sft_trainer.yaml are in 0.7.0 and no longer in 0.7.1. sft_trainer.py, on
# the engines that PPO has, is there from 0.6.0, and alone from 0.7.1.
ENGINE_SFT = Version("0.7.1")
# utils/tracking.py, supported_backend: "file" and "trackio" from 0.6.0.
FILE_LOGGER = Version("0.6.0")
TRACKED_SFT = Version(
    "0.5.0"
)  # fsdp_sft_trainer.py: from here on with optimizer states, and a file that names the last
# workers/engine/fsdp/transformer_impl.py: forward_step has autocast to bfloat16 up to 0.7.1, and from here on to
# mixed_precision.param_dtype. The engine's own `dtype` is read by nothing.
ENGINE_DTYPE = Version("0.8.0")
SHORT = {"float16": "fp16", "float32": "fp32"}
PLAIN = re.compile(r"[A-Za-z_/~][A-Za-z0-9_./@~-]*")  # what Hydra's grammar takes without quotes

ANSWERS = "verl/answers"  # in the run: where verl dumps each step's answers

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
    cpus: int = 0  # of a node, as Ray counts them; 0: not known here
    attention: str = "flash_attention_2"
    tensor_parallel: int = 1
    resume: str = ""  # a checkpoint's folder; empty: a fresh start
    answers: str = ANSWERS
    metrics: str = "verl/metrics-0.jsonl"  # where verl's JSON logger writes, from 0.6.0 on
    reward_file: str = "verl/reward.py"  # stands in for the person's own where this verl needs it


def lora(group: str, settings: Mapping[str, Any]) -> Options:
    """LoRA, where it is asked for."""
    if not settings["lora_rank"]:
        return {}
    targets = settings["lora_targets"]
    return {
        f"{group}.lora_rank": settings["lora_rank"],
        f"{group}.lora_alpha": settings["lora_alpha"],
        f"{group}.target_modules": "all-linear" if targets == ["all-linear"] else targets,
    }


def optimizer(group: str, settings: Mapping[str, Any], rate: float) -> Options:
    """AdamW and its schedule, from 0.6.0 a group with the same names everywhere."""
    return {
        f"{group}.lr": rate,
        f"{group}.weight_decay": settings["weight_decay"],
        f"{group}.clip_grad": settings["max_grad_norm"],
        f"{group}.lr_scheduler_type": settings["lr_schedule"],
        f"{group}.lr_warmup_steps_ratio": settings["lr_warmup_share"],
    }


def optimizer_before_groups(group: str, settings: Mapping[str, Any], rate: float) -> Options:
    """Up to 0.5.0 the schedule is named by its warm-up."""
    return {
        f"{group}.lr": rate,
        f"{group}.weight_decay": settings["weight_decay"],
        f"{group}.warmup_style": settings["lr_schedule"],
        f"{group}.lr_warmup_steps_ratio": settings["lr_warmup_share"],
    }


def attention(group: str, attention: str) -> Options:
    """Rows without padding go through flash-attn's functions; the others need padded batches."""
    return {
        f"++{group}.override_config.attn_implementation": attention,
        f"{group}.use_remove_padding": attention.startswith("flash_attention"),
    }


def refuse_other_attention(attention: str, version: Version) -> None:
    """Where FlashAttention 2 is written into the workers."""
    if attention != "flash_attention_2":
        raise BadInput(
            f"attention = {attention} with verl {version}, in whose workers flash_attention_2 is hard-wired",
            expected="flash-attn in the environment, or a newer verl (0.6.1 for PPO and GRPO, 0.7.1 for SFT)",
            hint="envdoctor install --profile verl-8gpu",
        )


def refuse_other_dtype(dtype: str, version: Version, since: str, part: str = "") -> None:
    """Where the type of the computation has no option."""
    if dtype != "bfloat16":
        raise BadInput(
            f"dtype = {dtype} with verl {version}, which computes {part}in bfloat16",
            expected=f"verl {since} or newer", hint="--set dtype=bfloat16",
        )  # fmt: skip


def engine_dtype(group: str, dtype: str) -> Options:
    """What FSDP's engine computes in, from 0.8.0: bfloat16 where nothing is said. Sums over GPUs stay float32."""
    if dtype == "bfloat16":
        return {}
    types = {"param_dtype": SHORT[dtype], "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return {f"++{group}.mixed_precision": types}


def hydra_value(value: Any) -> str:
    r"""A value as Hydra's grammar reads it. Samples: True -> true; None -> null; "a b's" -> 'a b\'s'; [1] -> [1].

    {"a": 1} -> {a:1}
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(hydra_value, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
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
