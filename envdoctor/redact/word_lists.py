"""The word lists of word_lists.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path


@cache
def _lists() -> dict[str, str]:
    return tomllib.loads((Path(__file__).parent / "word_lists.toml").read_text(encoding="utf-8"))


@cache
def word_list(name: str) -> frozenset[str]:
    """The words of one list."""
    return frozenset(_lists()[name].split())
