"""Parts of sentences."""

from __future__ import annotations

from collections.abc import Sequence


def join_words(words: Sequence[str]) -> str:
    """`torch`, `torch and GPU`, `torch, GPU and driver`; empty without words."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
