"""Each distinct prompt of a step is tokenized once."""

from __future__ import annotations

from typing import Any

from patches.context import PatchContext


def apply(context: PatchContext) -> bool:
    """Patch TRL 1.0 and later."""
    return tokenize_distinct_prompts(context.trainer)


def tokenize_distinct_prompts(trainer: Any) -> bool:
    """Tokenize each distinct prompt once, where the result is token ids and nothing else; False before TRL 1.0.

    64 completions of 8 prompts of 256 tokens: 25 ms of a step of 1.14 s (H200, 2026-11-23).
    """
    tokenize = getattr(trainer, "_tokenize_prompts", None)
    if tokenize is None:
        return False

    def tokenize_distinct(prompts: list[Any]) -> tuple[list[list[int]], Any, Any]:
        keys = [repr(prompt) for prompt in prompts]
        distinct = dict(zip(keys, prompts, strict=True))
        ids, images, fields = tokenize(list(distinct.values()))
        if images is not None or fields:  # one row per prompt is needed
            return tokenize(prompts)  # type: ignore[no-any-return]
        ids_of = dict(zip(distinct, ids, strict=True))
        return [list(ids_of[key]) for key in keys], images, fields

    trainer._tokenize_prompts = tokenize_distinct  # noqa: SLF001
    return True
