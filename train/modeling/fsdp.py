"""FSDP2: a model of which each process holds a part, gathered to answer and to be saved.

Every function that gathers is called by all processes, or by none. A model that is not divided passes through.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from settings import BadInput

PARTS = "pytorch_model_fsdp_0"  # accelerate's name of the folder with the weights of a divided model


def sharded_modules(model: Any) -> list[Any]:
    """The modules whose weights are gathered on their own; none where the model is whole."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:  # before torch 2.6
        return []
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextlib.contextmanager
def whole(model: Any) -> Iterator[None]:
    """Every weight on every process meanwhile, so that each may generate as many tokens as it has to.

    Layer by layer, a token would gather the model once, and all processes had to make the same number of them.
    """
    modules = [] if getattr(model, "_gathered", False) else sharded_modules(model)
    if not modules:
        yield
        return
    model._gathered = True  # noqa: SLF001  one within another gathers once
    kept = [stays_gathered(module) for module in modules]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module, keeps in zip(modules, kept, strict=True):
            module.reshard()
            module.set_reshard_after_forward(not keeps, recurse=False)
        model._gathered = False  # noqa: SLF001


def stays_gathered(module: Any) -> bool:
    """Whether a module's weights stay gathered from the forward to the backward pass: accelerate's last part."""
    state = module._get_fsdp_state()  # noqa: SLF001  no public name tells
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]  # noqa: SLF001  renamed in torch
    return any(group is not None and group.post_forward_mesh_info is None for group in groups)


def gather_for_generate(model: Any) -> None:
    """Let `model.generate` gather the model, whoever calls it: TRL's sampling, or a look at the held-out rows."""
    generate = model.generate

    @functools.wraps(generate)
    def generate_gathered(*arguments: Any, **named: Any) -> Any:
        if not sharded_modules(model):
            return generate(*arguments, **named)
        with whole(model):
            return generate(*arguments, **{"synced_gpus": False, **named})

    model.generate = generate_gathered


def configure_mixed_precision(config: Any, autocast: str) -> None:
    """Layers compute in autocast's type; gradients are added up in float32, and what comes out stays as it is.

    accelerate would add them up in bfloat16, and round the log-probabilities to it, too.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if autocast:
        policy = MixedPrecisionPolicy(param_dtype=getattr(torch, autocast), reduce_dtype=torch.float32)
        config.fsdp_plugin_args["mixed_precision_policy"] = policy


def gather_weights(model: Any) -> dict[str, Any] | None:
    """The whole state dict in the first process's host memory (empty in the others); none where it is not divided."""
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


def check_surroundings(settings: dict[str, Any], checkpoint: Path | None) -> None:
    """What the launcher set, and how the checkpoint was written, against the setting."""
    asked = settings["sharding"]
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true"):
        raise BadInput(
            "ACCELERATE_USE_FSDP is set: accelerate's launcher was told to divide the model",
            expected="the setting sharding alone, which says how",
            hint="start it with envdoctor train, or unset ACCELERATE_USE_FSDP, and --set sharding=fsdp",
        )
    if checkpoint is None:
        return
    # A checkpoint in parts is gone on with in parts, a whole one whole.
    made = "fsdp" if (checkpoint / PARTS).exists() else "none"
    if made != asked:
        raise BadInput(
            f"{checkpoint} was written with sharding = {made}, and run.json says {asked}",
            expected="the same setting to go on with",
            hint=f"write sharding = {made} into run.json, or begin a new run",
        )
