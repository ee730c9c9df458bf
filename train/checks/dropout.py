"""Whether a model drops activations at random while it trains. Without torch."""

from __future__ import annotations

from typing import Any


def dropout_rate(model: Any) -> float:
    """The highest rate of dropout in a model: of its modules (an adapter's among them) and of its attention."""
    modules = [module.p for module in model.modules() if type(module).__name__.startswith("Dropout")]
    attention = getattr(model.config.get_text_config(), "attention_dropout", None)
    return max([0.0, *modules, *([attention] if isinstance(attention, float) else [])])
