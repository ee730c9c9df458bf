"""FSDP2: precision, the gathered state dict, and the checks of launcher and checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from patches.fsdp_generate import sharded_modules
from settings import BadInput

LAUNCHER_ENGINES = {
    "FSDP": "ACCELERATE_USE_FSDP",
    "DeepSpeed": "ACCELERATE_USE_DEEPSPEED",
    "Megatron-LM": "ACCELERATE_USE_MEGATRON_LM",
}
SHARDED_WEIGHTS = "pytorch_model_fsdp_0"  # accelerate's directory of sharded weights in a checkpoint


def configure_mixed_precision(config: Any, autocast: str) -> None:
    """Compute layers in the autocast type, reduce gradients in float32, and keep the outputs' type.

    accelerate's default reduces gradients in bfloat16, and rounds the log-probabilities to it.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if autocast:
        policy = MixedPrecisionPolicy(param_dtype=getattr(torch, autocast), reduce_dtype=torch.float32)
        config.fsdp_plugin_args["mixed_precision_policy"] = policy


def gather_state_dict(model: Any) -> dict[str, Any] | None:
    """The full state dict in the host memory of rank 0, empty on other ranks; None for an unsharded model.

    A collective: all ranks call it.
    """
    if not sharded_modules(model):
        return None
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    first: dict[int, str] = {}
    for wrapped, parameter in model.named_parameters(remove_duplicate=False):
        name = wrapped.replace("_checkpoint_wrapped_module.", "")  # of accelerate's activation checkpointing
        if first.setdefault(id(parameter), name) != name and weights:
            weights[name] = weights[first[id(parameter)]]  # tied again, so that it is saved once
    return weights


def check_environment(settings: dict[str, Any], checkpoint: Path | None) -> None:
    """Compare the setting with the launcher's environment and with the format of the checkpoint."""
    for engine, name in LAUNCHER_ENGINES.items():
        if os.environ.get(name, "").lower() in ("1", "true"):
            raise BadInput(
                f"{name} is set: accelerate's launcher is configured for {engine}",
                expected="sharding by the setting fsdp alone: FSDP2 shards weights, gradients and optimizer states, "
                "as ZeRO-3 does",
                hint=f"start it with envdoctor train, or unset {name}, and --set fsdp=full_shard",
            )
    if checkpoint is None:
        return
    written = "full_shard" if (checkpoint / SHARDED_WEIGHTS).exists() else ""
    if written != settings["fsdp"]:
        raise BadInput(
            f"{checkpoint} was written with{'' if written else 'out'} fsdp, "
            f"and run.json has fsdp = {settings['fsdp']!r}",
            expected="the same setting in run.json as in the checkpoint",
            hint=f"write fsdp = {written!r} into run.json, or begin a new run",
        )
