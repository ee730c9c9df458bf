"""Generation with an FSDP2 model: the weights are gathered for the whole of `generate`.

Every function that gathers is a collective: all ranks call it, or none. A model without FSDP passes through.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from patches.context import PatchContext


def sharded_modules(model: Any) -> list[Any]:
    """The modules that FSDP2 shards; none for an unsharded model."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:  # before torch 2.6
        return []
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextlib.contextmanager
def gathered_weights(model: Any) -> Iterator[None]:
    """Hold every weight on every rank, so that each rank may generate as many tokens as it needs.

    FSDP's own gathering would run once per token, and all ranks would have to generate the same number of tokens.
    """
    modules = [] if getattr(model, "_weights_gathered", False) else sharded_modules(model)
    if not modules:
        yield
        return
    model._weights_gathered = True  # noqa: SLF001  a nested call does not gather again
    reshards = [reshards_after_forward(module) for module in modules]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module, reshard in zip(modules, reshards, strict=True):
            module.reshard()
            module.set_reshard_after_forward(reshard, recurse=False)
        model._weights_gathered = False  # noqa: SLF001


def reshards_after_forward(module: Any) -> bool:
    """Whether a module frees its gathered weights after the forward pass; accelerate's last module keeps them."""
    state = module._get_fsdp_state()  # noqa: SLF001  no public attribute has it
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]  # noqa: SLF001  renamed in torch
    return all(group is None or group.post_forward_mesh_info is not None for group in groups)


def apply(context: PatchContext) -> None:
    """Gather the weights in `model.generate`, for TRL's sampling and for the evaluation."""
    model, generate = context.model, context.model.generate

    @functools.wraps(generate)
    def generate_gathered(*arguments: Any, **named: Any) -> Any:
        if not sharded_modules(model):
            return generate(*arguments, **named)
        with gathered_weights(model):
            return generate(*arguments, **{"synced_gpus": False, **named})

    model.generate = generate_gathered
