"""The lists of words of words.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path


@cache
def _lists() -> dict[str, str]:
    return tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))


@cache
def words(name: str) -> frozenset[str]:
    """One list."""
    return frozenset(_lists()[name].split())
