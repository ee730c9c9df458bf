"""FSDP: its requirements, and its fields of GRPOConfig. Pure: facts are parameters.

FSDP2 only (torch's fully_shard): the model stays the same object, and each rank has a shard of its weights.
FSDP1's flat parameters need one dtype, and TRL's gathering for generation covers the root module only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from checks.engines import ENGINE_SETTINGS, sampling_engine
from settings import BadInput, format_value

if TYPE_CHECKING:
    from packaging.version import Version  # missing where only settings are checked

OFF = "--set fsdp="
# On any other device accelerate silently uses DDP (AcceleratorState: FSDP for MULTI_GPU and similar).
DEVICES = ("cuda",)
# From these versions on TRL and accelerate support FSDP2 for the reference model and the log-probabilities.
MINIMUM_VERSIONS = {"trl": "1.16", "transformers": "5.17", "accelerate": "1.15", "torch": "2.11"}
# Element-wise optimizers; bitsandbytes and Adafactor use more of a weight than the local shard.
OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd")


def fsdp_fields(
    settings: Mapping[str, Any], versions: Mapping[str, Version | None], *, device: str, ranks: int
) -> dict[str, Any]:
    """GRPOConfig's fields for `fsdp`; none without it. Refuses unsupported combinations."""
    if not settings["fsdp"]:
        return {}
    from packaging.version import Version

    check_fsdp_processes(device, ranks)
    for name, least in MINIMUM_VERSIONS.items():
        if (versions.get(name) or Version("0")) < Version(least):
            raise BadInput(
                f"fsdp = full_shard with {name} {versions.get(name)}",
                expected=f"{name} {least} or newer", hint=f"envdoctor profiles, or {OFF}",
            )  # fmt: skip
    check_fsdp_settings(settings)
    return {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",  # one layer at a time
            "reshard_after_forward": True,
            # Each rank writes its shard: no rank needs all weights, and another number of ranks can resume.
            "state_dict_type": "SHARDED_STATE_DICT",
            # Within a gathered layer; transformers' own checkpointing may gather it again. Not with an adapter: PEFT
            # does not find it under accelerate's wrapper, and would save empty files (peft 0.21, accelerate 1.15).
            "activation_checkpointing": settings["gradient_checkpointing"] and not settings["r"],
        },
        "gradient_checkpointing": settings["gradient_checkpointing"] and settings["r"] > 0,
    }


def check_fsdp_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that FSDP does not support on any machine. Standard library only."""
    for message, expected, hint in _setting_conflicts(settings) if settings["fsdp"] else ():
        raise BadInput(f"fsdp = full_shard {message}", expected=expected, hint=hint)


def check_fsdp_processes(device: str, ranks: int) -> None:
    """Refuse a device or a number of ranks without FSDP."""
    if device not in DEVICES:
        raise BadInput(
            f"fsdp = full_shard on device {device}",
            expected="one GPU per process: on a CPU accelerate silently uses DDP",
            hint=OFF,
        )
    if ranks < 2:
        raise BadInput(
            "fsdp = full_shard in one process",
            expected="at least two GPUs, one process per GPU",
            hint=f"--gpus 2, or {OFF}",
        )


def _setting_conflicts(settings: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    kind, full, engine = settings["dtype"], not settings["r"], sampling_engine(settings)
    rules = [
        # setting, whether it conflicts, expected, replacement
        (ENGINE_SETTINGS[engine].partition(" ")[0], engine != "transformers",
         "generation by transformers: no other is tested with sharded weights", "false"),
        ("load_in_4bit", settings["load_in_4bit"],
         "weights in 16 or 32 bits: those of bitsandbytes cannot be sharded", "false"),
        ("load_in_8bit", settings["load_in_8bit"],
         "weights in 16 or 32 bits: those of bitsandbytes cannot be sharded", "false"),
        ("dtype", kind == "float16", "bfloat16: a GradScaler is untested with sharded gradients", "auto"),
        ("dtype", kind == "bfloat16" and full,
         "dtype = auto: accelerate converts trained weights to float32", "auto"),
        ("optim", settings["optim"] not in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}", OPTIMIZERS[0]),
        ("target_parameters", bool(settings["target_parameters"]),
         "target_modules alone: adapters on parameters are untested with sharded weights", ""),
        ("liger_kernels", settings["liger_kernels"] == "on", "liger_kernels = off: untested with FSDP", "off"),
        ("torch_compile", settings["torch_compile"], "torch_compile = false: untested with FSDP", "false"),
        ("merge", settings["merge"], "merge = false: no rank has the full model", "false"),
    ]  # fmt: skip
    return [
        (f"with {name} = {format_value(settings[name])}", expected, f"--set {name}={instead}, or {OFF}")
        for name, conflicts, expected, instead in rules
        if conflicts
    ]
