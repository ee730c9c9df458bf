"""An adapted model while TRL's trainer is constructed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from patches.context import PatchContext


def apply(context: PatchContext) -> contextlib.AbstractContextManager[None]:
    """Protect the adapter during the construction."""
    return protect_adapter(context.model)


@contextlib.contextmanager
def protect_adapter(model: Any) -> Iterator[None]:
    """Keep GRPOTrainer(...) from undoing what `modeling.lora.add_lora` set up.

    - TRL 0.22 and 0.23 freeze every weight of a 4- or 8-bit model, the adapter included, and copy the arguments with
      dataclasses.replace, which raises ("'generation_batch_size' and 'steps_per_generation'"). The marks of a
      quantized model are hidden.
    - TRL 0.27 and later keep a second copy of the adapter as the reference at beta > 0. PEFT below 0.20 refuses it
      with target_parameters, and every checkpoint would contain it. A new adapter adds zero, so the model with its
      adapter disabled is the same reference, and TRL uses that where no adapter is named "ref".
    - TRL 0.27 and later cast the adapter of a quantized model to bfloat16, in which small updates are lost.
    """
    if not hasattr(model, "peft_config"):
        yield
        return
    hidden = ("is_loaded_in_4bit", "is_loaded_in_8bit")
    for name in hidden:
        object.__setattr__(model, name, False)
    model.add_adapter = lambda *_, **__: None
    get_parameter = model.get_parameter
    model.get_parameter = lambda name: get_parameter(name.replace(".ref.", ".default.")).clone()
    try:
        yield
    finally:
        for name in (*hidden, "add_adapter", "get_parameter"):
            model.__dict__.pop(name, None)
