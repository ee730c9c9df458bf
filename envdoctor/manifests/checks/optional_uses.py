"""Problems of options that the programs of a checkout do not take, such as quantized models or vLLM in TRL."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem

_CODE = (".py", ".ipynb", ".sh", ".yaml", ".yml", ".json", ".toml")
_MAX_FILES = 400


class _Option(NamedTuple):
    """The code that takes an option, and the code that switches it off; without the latter its absence counts."""

    taken: re.Pattern[str]
    refused: re.Pattern[str] | None
    reason: str


_OPTIONS = {
    "HF009": _Option(
        lazy_pattern(r"load_in_[48]bit|BitsAndBytesConfig|bnb_[48]bit|quantiz", re.IGNORECASE),
        None,
        "no program of the checkout loads a quantized model",
    ),
    "TRL001": _Option(
        lazy_pattern(
            r"use_vllm[\"']?\s*[=:]\s*(?:True|1)\b|--use_vllm(?!\s+(?:False|0)\b)|[\"']use_vllm[\"']\s*,|use_vllm:\s*bool"
            r"|vllm[_-]serve|vllm_mode",
            re.IGNORECASE,
        ),
        lazy_pattern(r"use_vllm[\"']?\s*[=:]\s*False\b", re.IGNORECASE),
        "the programs of the checkout set use_vllm to False",
    ),
}  # fmt: skip


def if_option_is_taken(context: GuideContext, rules: Collection[str], problem: Problem) -> Problem:
    """The problem of some version rules; a note if all of them are about options that no program takes."""
    options = [_OPTIONS.get(each) for each in rules]
    checkout = context.guide.checkout
    is_fatal = problem.status == "error" and "TRL001" in rules  # the import of the trainer fails
    is_judged = problem.status in ("error", "warning") and not is_fatal and all(options)
    if not is_judged or not checkout or not checkout.is_clone:
        return problem
    text = _code_of(checkout)
    if not text or any(each and _is_taken(each, text) for each in options):
        return problem
    reasons = "; ".join(each.reason for each in options if each)
    return replace(problem, status="info", message=f"{problem.message} ({reasons})")


def _is_taken(option: _Option, text: str) -> bool:
    return bool(option.taken.search(text)) or (option.refused is not None and not option.refused.search(text))


def _code_of(checkout: Checkout) -> str:
    """The code and the settings of a checkout; empty if they are too many, or if it has no programs."""
    paths = sorted(path for path in checkout.paths if path.endswith(_CODE))
    has_program = any(path.endswith((".py", ".ipynb")) for path in paths)
    return "\n".join(map(checkout.text, paths)) if has_program and len(paths) <= _MAX_FILES else ""
