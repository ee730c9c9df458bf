"""FSDP: which settings go with it, and what the installed transformers is told. Pure, as trl_fields.

FSDP2 alone (torch's fully_shard): the model stays the same object, of which each process holds a part.
FSDP1's flat parameters want one dtype, and TRL's own gathering for generation reaches the root's weights only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from settings import BadInput, format_value

if TYPE_CHECKING:
    from packaging.version import Version  # not there where settings alone are checked

OFF = "--set sharding=none"
# accelerate makes DDP of it on any other device without a word (AcceleratorState: FSDP for MULTI_GPU and its like).
DEVICES = ("cuda",)
# From here TRL prepares the reference and computes log-probabilities with FSDP2 in view, and so does accelerate.
MINIMUM_VERSIONS = {"trl": "1.16", "transformers": "5.17", "accelerate": "1.15", "torch": "2.11"}
# Those that work number by number on a part of a weight; bitsandbytes and Adafactor look at more than their part.
OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd")


def fsdp_fields(
    settings: Mapping[str, Any], versions: Mapping[str, Version | None], *, device: str, ranks: int
) -> dict[str, Any]:
    """GRPOConfig's fields for `sharding`; none without it. What does not go with it is refused."""
    if settings["sharding"] != "fsdp":
        return {}
    check_fsdp_processes(device, ranks)
    for message, expected, hint in _versions(versions):
        raise BadInput(f"sharding = fsdp {message}", expected=expected, hint=hint)
    check_fsdp_settings(settings)
    return {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",  # a layer at a time
            "reshard_after_forward": True,
            # Each process writes its part: none has to hold all, and another number of them can go on from it.
            "state_dict_type": "SHARDED_STATE_DICT",
            # Within what is gathered; transformers' own may gather a layer once more. Not for an adapter: PEFT finds
            # nothing of it under accelerate's wrapper, and would write empty files (peft 0.21, accelerate 1.15).
            "activation_checkpointing": settings["gradient_checkpointing"] and not settings["lora_rank"],
        },
        "gradient_checkpointing": settings["gradient_checkpointing"] and settings["lora_rank"] > 0,
    }


def check_fsdp_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what does not go with FSDP on any machine; needs the standard library alone."""
    for message, expected, hint in _settings(settings) if settings["sharding"] == "fsdp" else ():
        raise BadInput(f"sharding = fsdp {message}", expected=expected, hint=hint)


def check_fsdp_processes(device: str, ranks: int) -> None:
    """Refuse processes among which nothing can be divided."""
    if device not in DEVICES:
        raise BadInput(
            f"sharding = fsdp on device = {device}",
            expected="a GPU each process: on a CPU accelerate makes DDP of it without a word",
            hint=OFF,
        )
    if ranks < 2:
        raise BadInput(
            "sharding = fsdp in one process, which has nobody to share with",
            expected="two GPUs or more, a process each",
            hint=f"--gpus 2, or {OFF}",
        )


def _versions(versions: Mapping[str, Version | None]) -> list[tuple[str, str, str]]:
    from packaging.version import Version

    return [
        (f"with {name} {versions.get(name)}", f"{name} {least} or newer", f"envdoctor profiles, or {OFF}")
        for name, least in MINIMUM_VERSIONS.items()
        if (versions.get(name) or Version("0")) < Version(least)
    ]


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    kind, full = settings["dtype"], not settings["lora_rank"]
    rules = [
        # setting, whether it is in the way, what is expected, what to set instead
        ("generation", settings["generation"] != "transformers",
         "generation = transformers: no other was tried on divided weights", "transformers"),
        ("quantization", settings["quantization"] != "none",
         "weights in 16 or 32 bits: bitsandbytes' do not divide", "none"),
        ("dtype", kind == "float16", "bfloat16: a GradScaler was not tried on divided gradients", "auto"),
        ("dtype", kind == "bfloat16" and full,
         "dtype = auto: accelerate makes float32 of weights that are trained", "auto"),
        ("optimizer", settings["optimizer"] not in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}", OPTIMIZERS[0]),
        ("lora_target_parameters", bool(settings["lora_target_parameters"]),
         "lora_targets alone: PEFT's adapters on parameters were not tried on divided ones", ""),
        ("liger_kernels", settings["liger_kernels"] == "on", "liger_kernels = off: not tried together", "off"),
        ("compile", settings["compile"], "compile = false: not tried together", "false"),
        ("merge", settings["merge"], "merge = false: no process holds the whole model to merge into", "false"),
    ]  # fmt: skip
    return [
        (f"with {name} = {format_value(settings[name])}", expected, f"--set {name}={instead}, or {OFF}")
        for name, in_the_way, expected, instead in rules
        if in_the_way
    ]
