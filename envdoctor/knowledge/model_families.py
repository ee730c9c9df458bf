"""The models whose names show which module of transformers they need: `Qwen/Qwen3-8B` needs `models.qwen3`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.modules import spans_of_module
from envdoctor.knowledge.names import Span

MODELS = "transformers.models."
# Families whose models need the code of transformers itself: none of them has code in its repository.
_FAMILIES = (
    (lazy_pattern(r"qwen3[._]5[-_]\d"), "qwen3_5"),
    (lazy_pattern(r"qwen3-next-\d"), "qwen3_next"),
    (lazy_pattern(r"qwen3-vl-\d+b(?!-a)"), "qwen3_vl"),
    (lazy_pattern(r"qwen3-\d+b-a\d"), "qwen3_moe"),
    (lazy_pattern(r"qwen3-\d(?!\d*b-a)"), "qwen3"),
    (lazy_pattern(r"qwen2\.5-vl-\d"), "qwen2_5_vl"),
    (lazy_pattern(r"qwen2-vl-\d"), "qwen2_vl"),
    (lazy_pattern(r"qwen2(?:\.5)?-\d"), "qwen2"),
    (lazy_pattern(r"gemma-3n-"), "gemma3n"),
    (lazy_pattern(r"gemma-3-\d"), "gemma3"),
    (lazy_pattern(r"llama-4-"), "llama4"),
    (lazy_pattern(r"gpt-oss-\d"), "gpt_oss"),
)
_NAME = lazy_pattern(r"(?<![\w.-])(?:qwen|gemma|llama|gpt-oss)[\w.-]{2,60}", re.IGNORECASE)


def module_of_model(model: str) -> str:
    """The module of transformers that a model or its folder needs, by its name; empty if the name shows none."""
    name = model.rstrip("/").rpartition("/")[2].lower()
    return next((module for pattern, module in _FAMILIES if pattern.match(name)), "")


def models_in_text(text: str) -> Iterator[tuple[str, Span]]:
    """The models that a text names, each with the releases of transformers that have its code."""
    for found in _NAME.finditer(text):
        spans = spans_of_module(MODELS + module) if (module := module_of_model(found[0])) else ()
        if spans:
            yield found[0], spans[0]
