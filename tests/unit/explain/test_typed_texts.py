"""Messages as web pages and people change them, and short texts from memory."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import cache

import pytest
from support.explained import best_cause

from envdoctor.explain.similar import known_messages, words_of
from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.symptoms import alternatives, symptom_table

Change = Callable[[str], str]
CHANGES: dict[str, Change] = {
    "entities": html.escape,
    "no-break-spaces": lambda text: text.replace(" ", "\u00a0"),
    "double-spaces": lambda text: text.replace(" ", "  "),
    "curly-quotes": lambda text: re.sub(
        r'"([^"]*)"', "\u201c\\1\u201d", re.sub(r"'([^']*)'", "\u2018\\1\u2019", text)
    ),
    "escaped-underscores": lambda text: text.replace("_", r"\_"),
    "no-space-before-a-symbol": lambda text: text.replace("undefined symbol: _", "undefined symbol:_"),
    "zero-width-space": lambda text: text.replace(" ", " \u200b"),
}
LOSSY_CHANGES: dict[str, Change] = {
    "lower-case": str.lower,
    "no-quotes": lambda text: re.sub(r"""['"`]""", "", text),
}


@cache
def samples() -> dict[str, str]:
    """One sample of each cause that is enough by itself."""
    rows = {symptom.cause: symptom.sample for symptom in symptom_table().symptoms if not symptom.when}
    return {cause: text for cause, text in rows.items() if (found := best_cause(text)) and found.cause == cause}


def causes_after(change: Change) -> dict[str, str]:
    found = {cause: best_cause(change(text)) for cause, text in samples().items()}
    return {cause: each.cause if each else "" for cause, each in found.items()}


@pytest.mark.parametrize("name", CHANGES)
def test_typography_of_web_pages_changes_no_cause(name: str) -> None:
    assert len(samples()) > 80
    assert {cause: found for cause, found in causes_after(CHANGES[name]).items() if found != cause} == {}


@pytest.mark.parametrize("name", LOSSY_CHANGES)
def test_nine_of_ten_messages_are_found_without_case_or_quotes(name: str) -> None:
    found = causes_after(LOSSY_CHANGES[name])
    assert sum(cause == each for cause, each in found.items()) >= 0.9 * len(found)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("vllm._C undefined symbol", "torch-abi-mismatch"),
        ("libcudart.so.12 not found", "cudart-missing"),
        ("GLIBC_2.34 not found", "glibc-too-old"),
        ("cuda oom", "gpu-oom"),
        ("Xid 31", "ecc-or-xid"),
        ("NCCL timeout", "collective-stalled"),
    ],
)
def test_a_short_text_gets_the_cause_of_a_similar_message(text: str, cause: str) -> None:
    found = best_cause(text)
    assert found is not None
    assert (found.cause, found.similar) == (cause, True)
    assert found.lines == (text,)


@pytest.mark.parametrize(
    "text",
    [
        "how do I install vllm?",
        "hello world",
        "my model outputs garbage",
        "KeyError: 'labels'",
        "binary",
        "nccl",
        "libcuda",
        "timeout\n",
    ],
)
def test_a_short_text_about_something_else_gets_no_cause(text: str) -> None:
    assert best_cause(text) is None


def test_a_list_of_packages_is_no_message() -> None:
    assert best_cause("torch==2.8.0\nvllm==0.10.2\n") is None


def test_words_of_identifiers_are_split() -> None:
    assert words_of("CUDA_ERROR libcudart.so.12 noKernelImage") == {
        *("cuda", "error", "libcudart", "so", "no", "kernel", "image"),
    }


def test_alternatives_of_a_pattern_are_split_outside_of_groups() -> None:
    assert alternatives(r"a(?:b|c)|[|]d\||e") == ["a(?:b|c)", r"[|]d\|", "e"]


def test_each_phrase_belongs_to_a_known_cause() -> None:
    assert {symptom.cause for _, symptom in known_messages()[0]} <= set(causes())


def test_a_missing_quotation_mark_is_no_part_of_a_word() -> None:
    """`'type' object is not subscriptable` is the message of an old Python."""
    assert best_cause("TypeError: type object is not subscriptable") is not None
    assert best_cause("TypeError: 'NoneType' object is not subscriptable") is None
