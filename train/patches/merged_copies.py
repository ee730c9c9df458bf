"""The weight sync of an adapter to vLLM, from merged copies of the frozen weights.

TRL adds the adapter to the frozen weights in place, sends them, and subtracts it again. In 16 bits both results are
rounded, so the frozen weights change with every sync: after 80 steps by an eighth of what the adapter has learned
(matrices of 576 x 576, rank 16). The saved adapter then belongs to a base that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from patches.context import PatchContext


def apply(context: PatchContext) -> bool:
    """Patch the weight sync of the trainer; False without vLLM or an adapter, and before TRL 0.28."""
    return merge_in_copies(context.trainer)


def merge_in_copies(trainer: Any) -> bool:
    """Let TRL read merged copies, one tensor at a time; False for quantized weights, which PEFT merges itself."""
    generation = getattr(trainer, "vllm_generation", None)
    named_tensors = getattr(generation, "_iter_named_params", None)
    model = getattr(generation, "model", None)
    if named_tensors is None or not hasattr(model, "merge_adapter"):
        return False
    if not all(parameter.is_floating_point() for _, parameter in adapted_parameters(model)):
        return False

    def named_copies() -> Iterator[tuple[str, torch.Tensor]]:
        adapted: dict[int, list[tuple[Any, Any]]] = {}
        for layer, parameter in adapted_parameters(model):
            adapted.setdefault(parameter.data_ptr(), []).append((layer, parameter))
        with in_place_merge_disabled(model):
            for name, tensor in named_tensors():
                yield name, merged_copy(adapted[tensor.data_ptr()]) if tensor.data_ptr() in adapted else tensor

    generation._iter_named_params = named_copies  # type: ignore[union-attr]  # noqa: SLF001
    return True


def adapted_parameters(model: Any) -> list[tuple[Any, Any]]:
    """The layers of an adapter, each with the frozen parameter that it adds to."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [
        (layer, layer.get_param() if hasattr(layer, "get_param") else layer.get_base_layer().weight)
        for layer in model.modules()
        if isinstance(layer, BaseTunerLayer)
    ]


@torch.no_grad()
def merged_copy(layers: list[tuple[Any, Any]]) -> torch.Tensor:
    """A copy of a frozen parameter with all its adapters added."""
    parameter = layers[0][1]
    frozen = parameter.data
    parameter.data = frozen.clone()
    try:
        for layer, _ in layers:
            layer.merge()
        return parameter.data  # type: ignore[no-any-return]
    finally:
        parameter.data = frozen
        for layer, _ in layers:
            layer.merged_adapters.clear()


@contextmanager
def in_place_merge_disabled(model: Any) -> Iterator[None]:
    """TRL merges and unmerges the model as a whole, before and after it reads the tensors."""
    model.merge_adapter = model.unmerge_adapter = lambda: None
    try:
        yield
    finally:
        del model.merge_adapter, model.unmerge_adapter
