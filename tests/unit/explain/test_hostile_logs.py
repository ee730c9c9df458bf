"""Every pattern takes bounded time in a text that is made of its own parts."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from functools import cache
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from support.cases import each_case

from envdoctor.explain.scan import LONGEST_PART, scan, vocabulary
from envdoctor.explain.searches import MAX_SECONDS, UNKNOWN_MEMBER, WINDOW_LENGTH, WORD
from envdoctor.knowledge.symptoms import required_literals, symptom_table

# For half a window, on a busy machine: eight times as much for a window even if the time is cubic. The worst window
# took 60 s before.
TEXT_LENGTH, TEXT_SECONDS = WINDOW_LENGTH // 2, 0.25
LETTERS = {constants.CATEGORY_DIGIT: "1", constants.CATEGORY_SPACE: " "}


def sample(tree: Any, repeats: int) -> str:
    """A text that a pattern matches, with its unbounded parts repeated."""
    text = ""
    for operator, value in tree:
        if operator is constants.LITERAL:
            text += chr(value)
        elif operator is constants.IN:
            text += _member(value)
        elif operator is constants.BRANCH:
            text += sample(value[1][0], repeats)
        elif operator is constants.SUBPATTERN:
            text += sample(value[3], repeats)
        elif operator in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            least, most, part = value
            text += sample(part, repeats) * max(least, min(int(most), repeats))
        elif operator in (constants.ANY, constants.NOT_LITERAL):
            text += "a"
    return text


def _member(items: Any) -> str:
    for operator, value in items:
        if operator is constants.NEGATE:
            return "a"
        if operator is constants.LITERAL:
            return chr(value)
        if operator is constants.RANGE:
            return chr(value[0])
    return LETTERS.get(items[0][1], "a")


def hostile_texts(pattern: str) -> Iterator[str]:
    """Texts of beginnings of a match, which never becomes one."""
    tree = parser.parse(pattern)
    alternatives = tree[0][1][1] if len(tree) == 1 and tree[0][0] is constants.BRANCH else [tree]
    for alternative in alternatives:
        whole = sample(alternative, 3)
        for share in (0.4, 0.9):
            start = whole[: max(1, int(len(whole) * share))]
            for end in ("", " ", "_"):
                yield ((start + end) * TEXT_LENGTH)[:TEXT_LENGTH]


@cache
def patterns() -> dict[str, str]:
    """All patterns by name."""
    table = symptom_table()
    found = {symptom.id: symptom.pattern for symptom in table.symptoms}
    return found | {name: signal.pattern for name, signal in table.signals.items()} | {"members": UNKNOWN_MEMBER}


@each_case("name", patterns())
def test_each_pattern_ends_in_a_window_of_its_own_parts(name: str) -> None:
    pattern = patterns()[name]
    for text in hostile_texts(pattern):
        started = time.process_time()
        re.search(pattern, text)
        assert time.process_time() - started < TEXT_SECONDS, text[:80]


@pytest.mark.parametrize("line", ["cutlass_aaa_", "aaaa aaaa requires aaaa", "GptOssaaa ", "type object '"])
def test_a_megabyte_takes_seconds(line: str) -> None:
    text = ((line * 400)[:4000] + "\n").encode() * 260
    started = time.process_time()
    scan(io.BytesIO(text), symptom_table())
    assert time.process_time() - started < 10 * MAX_SECONDS


def test_a_long_word_is_cut_into_parts_that_contain_every_literal() -> None:
    parts = {
        word for pattern in patterns().values() for each in required_literals(pattern) for word in WORD.findall(each)
    }
    assert max(map(len, parts)) <= LONGEST_PART
    for part in parts:
        for before in (0, 200, 250, 1000):
            assert part in vocabulary("x" * before + part + "y" * 5000)
    assert len(vocabulary("cutlass_aaa_" * 100_000)) < 100_000
