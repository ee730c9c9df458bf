"""Building blocks of the options of verl's trainers, and Hydra's syntax for them. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from settings import BadInput

# trainer/fsdp_sft_trainer.py and its sft_trainer.yaml exist up to 0.7.0. sft_trainer.py, which uses the engines of
# PPO, exists from 0.6.0 on, and is the only one from 0.7.1 on.
ENGINE_SFT = Version("0.7.1")
# utils/tracking.py, supported_backend: "file" and "trackio" from 0.6.0 on.
FILE_LOGGER = Version("0.6.0")
# fsdp_sft_trainer.py saves optimizer states and latest_checkpointed_iteration.txt from here on.
TRACKED_SFT = Version("0.5.0")
# workers/engine/fsdp/transformer_impl.py: forward_step uses autocast to bfloat16 up to 0.7.1, and to
# mixed_precision.param_dtype from here on. The engine's own option `dtype` is not read.
ENGINE_DTYPE = Version("0.8.0")
SHORT_DTYPES = {"float16": "fp16", "float32": "fp32"}
UNQUOTED = re.compile(r"[A-Za-z_/~][A-Za-z0-9_./@~-]*")  # strings that Hydra's grammar accepts without quotes

ROLLOUT_FOLDER = "verl/answers"  # in the run directory: verl dumps the completions of each step there

Options = dict[str, Any]


@dataclass(frozen=True)
class LaunchContext:
    """Paths, devices and resolved settings that the options depend on."""

    train_file: str = "data/train.parquet"
    held_out_file: str = "data/held_out.parquet"
    checkpoints: str = "checkpoints"
    project: str = "envdoctor"
    experiment: str = "run"
    nodes: int = 1
    gpus: int = 1  # per node
    cpus: int = 0  # per node, as Ray counts them; 0: unknown
    attention: str = "flash_attention_2"  # resolved, never "auto"
    tensor_parallel: int = 1
    resume: str = ""  # directory of a checkpoint; empty: start from the beginning
    rollout_folder: str = ROLLOUT_FOLDER
    metrics: str = "verl/metrics-0.jsonl"  # file of verl's JSON logger, from 0.6.0 on
    reward_file: str = "verl/reward.py"  # wrapper of the user's reward function, for versions that need it


def lora_options(group: str, settings: Mapping[str, Any]) -> Options:
    """Return the options of LoRA, or none for full fine-tuning."""
    if not settings["r"]:
        return {}
    targets = settings["target_modules"]
    return {
        f"{group}.lora_rank": settings["r"],
        f"{group}.lora_alpha": settings["lora_alpha"],
        f"{group}.target_modules": "all-linear" if targets == ["all-linear"] else targets,
    }


def optimizer_options(group: str, settings: Mapping[str, Any], learning_rate: float) -> Options:
    """Return the options of AdamW and its schedule, from 0.6.0 on a group with the same names everywhere."""
    return {
        f"{group}.lr": learning_rate,
        f"{group}.weight_decay": settings["weight_decay"],
        f"{group}.clip_grad": settings["max_grad_norm"],
        f"{group}.lr_scheduler_type": settings["lr_scheduler_type"],
        f"{group}.lr_warmup_steps_ratio": settings["warmup_ratio"],
    }


def old_optimizer_options(group: str, settings: Mapping[str, Any], learning_rate: float) -> Options:
    """Return the options of AdamW up to 0.5.0, where the schedule is called warmup_style."""
    return {
        f"{group}.lr": learning_rate,
        f"{group}.weight_decay": settings["weight_decay"],
        f"{group}.warmup_style": settings["lr_scheduler_type"],
        f"{group}.lr_warmup_steps_ratio": settings["warmup_ratio"],
    }


def attention_options(group: str, attention: str) -> Options:
    """Return the options of attention. Only flash-attn supports batches without padding."""
    return {
        f"++{group}.override_config.attn_implementation": attention,
        f"{group}.use_remove_padding": attention.startswith("flash_attention"),
    }


def check_hard_coded_attention(attention: str, version: Version) -> None:
    """Refuse another attention for versions whose workers hard-code FlashAttention 2."""
    if attention != "flash_attention_2":
        raise BadInput(
            f"attn_implementation = {attention} with verl {version}, whose workers hard-code flash_attention_2",
            expected="flash-attn in the environment, or a newer verl (0.6.1 for PPO and GRPO, 0.7.1 for SFT)",
            hint="envdoctor install verl-8gpu",
        )


def check_hard_coded_dtype(dtype: str, version: Version, since: str, part: str = "") -> None:
    """Refuse another dtype for versions without an option for it; `part` is empty or "the critic "."""
    if dtype != "bfloat16":
        raise BadInput(
            f"dtype = {dtype} with verl {version}, which computes {part}in bfloat16",
            expected=f"verl {since} or newer", hint="--set dtype=bfloat16",
        )  # fmt: skip


def engine_dtype_options(group: str, dtype: str) -> Options:
    """Return the compute dtype of the FSDP engine, from 0.8.0 on; its default is bfloat16. Reductions use float32."""
    if dtype == "bfloat16":
        return {}
    types = {"param_dtype": SHORT_DTYPES[dtype], "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return {f"++{group}.mixed_precision": types}


def format_value(value: Any) -> str:
    r"""Format a value in Hydra's grammar.

    Samples: True -> true; None -> null; "a b's" -> 'a b\'s'; [1] -> [1]; {"a": 1} -> {a:1}
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(format_value, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{format_value(item)}" for key, item in value.items()) + "}"
    text = str(value)
    if not isinstance(value, str) or (
        UNQUOTED.fullmatch(text) and text.lower() not in ("true", "false", "null", "nan", "inf")
    ):
        return text
    # A backslash is literal unless a quote follows it.
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text) + "'"


def format_overrides(options: Options, user_options: list[str]) -> list[str]:
    """Return verl's command-line overrides. The user's options come last and take precedence."""
    return [*(f"{name}={format_value(value)}" for name, value in options.items()), *user_options]
