"""Which requirement of a set gives way to others that exclude it."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.resolution.torch_sources import TORCH_FAMILY

_NAMES = lazy_pattern(r"(?<![\w.-])([A-Za-z0-9][A-Za-z0-9._-]*?)(?=[\s,;=<>!~\[]|$)")
_DEPENDS_ON = lazy_pattern(r"depends on ([A-Za-z0-9][\w.-]*?)(?=[\s,;=<>!~\[]|$)")
CORE = frozenset({"torch", "vllm", "sglang", "lmdeploy", "transformers", "trl", "verl", "deepspeed"})
_OTHER = 2  # the kind of packages that give way also without another requirement
_OF_TWO = 2
_ENGINES = frozenset({"vllm", "sglang", "lmdeploy"})


def least_important(conflict: str, requirements: Sequence[str]) -> str:
    """The requirement with a version to give way, of those that a conflict names; empty without one.

    Of two that are equal, it is the one that the other depends on: its own version is rarely the reason for the file.
    """
    named = list(dict.fromkeys(normalize_name(name) for name in _NAMES.findall(conflict)))
    versioned = [text for text in requirements if Requirement(text).specifier]
    found = [text for text in versioned if normalize_name(Requirement(text).name) in named]
    first_named = sorted(found, key=lambda text: named.index(normalize_name(Requirement(text).name)))
    limited = {normalize_name(name) for name in _DEPENDS_ON.findall(conflict)}

    def order(text: str) -> tuple[int, bool, bool, int]:
        kind, is_open, priority = _expendability(text)
        return kind, is_open, normalize_name(Requirement(text).name) in limited, priority

    least = max(first_named, key=order, default="")
    is_needed = _expendability(least)[0] < _OTHER if least else True
    return "" if is_needed and len(found) < _OF_TWO else least


def _expendability(text: str) -> tuple[int, bool, int]:
    """How easily a requirement gives way: the engines and torch last, a range before an exact version."""
    name = normalize_name(Requirement(text).name)
    kind = 4 if name in TORCH_FAMILY else 3  # the companions of torch have one release for each torch
    if name in CORE:
        kind = 0 if name in _ENGINES else 1 if name == "torch" else 2
    return min(kind, _OTHER), "==" not in text, kind
