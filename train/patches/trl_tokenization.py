"""The prompts of a step, each tokenized once: TRL does it again for each of its answers."""

from __future__ import annotations

from typing import Any


def tokenize_distinct_prompts(trainer: Any) -> None:
    """Where TRL has a place for it (from 1.0), and a prompt is its tokens and nothing else.

    64 answers to 8 prompts of 256 tokens: 25 ms of a step of 1.14 s (an H200 machine, 2026-11-23).
    """
    tokenize = getattr(trainer, "_tokenize_prompts", None)
    if tokenize is None:
        return

    def tokenize_distinct(prompts: list[Any]) -> tuple[list[list[int]], Any, Any]:
        names = [repr(prompt) for prompt in prompts]
        distinct = dict(zip(names, prompts, strict=True))
        ids, images, fields = tokenize(list(distinct.values()))
        if images is not None or fields:  # a row a prompt of each
            return tokenize(prompts)  # type: ignore[no-any-return]
        found = dict(zip(distinct, ids, strict=True))
        return [list(found[name]) for name in names], images, fields

    trainer._tokenize_prompts = tokenize_distinct  # noqa: SLF001
