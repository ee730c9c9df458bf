"""Sections one after the other that install the same packages, such as "Install stable release" and "... nightly"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.conditional_blocks import Span, installed_names
from envdoctor.manifests.markdown import Block

_STEP = lazy_pattern(r"step|\d+[.)]|update|upgrade|reinstall|then|fix|(?:^|\W)(?:first|second|next)\b", re.IGNORECASE)


def twin_sections(lines: Sequence[str], blocks: Sequence[Block]) -> Iterator[tuple[Span, Span]]:
    """Two sections whose headings differ in one word, and whose first commands install the same packages."""
    code = {number for block in blocks for number, _ in block.lines}
    headings = [
        (number, len(found[1]), found[2])
        for number, text in enumerate(lines, 1)
        if number not in code and (found := re.match(r"(#{1,6})\s+(.+?)[\s#:]*$", text))
    ]
    ends = [number for number, _, _ in headings[2:]] + [len(lines) + 1]
    for ((first, level, title), (other_first, other_level, other)), end in zip(
        pairwise(headings), ends, strict=False
    ):
        if level != other_level or not _differ_in_one_word(title, other):
            continue
        names = _first_installed(blocks, first, other_first)
        if names and names == _first_installed(blocks, other_first, end):
            yield (title[:80], first, other_first - 1), (other[:80], other_first, end - 1)


def _differ_in_one_word(title: str, other: str) -> bool:
    words, others = title.lower().split(), other.lower().split()
    differing = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
    is_step = _STEP.search(title) or _STEP.search(other)
    return len(words) == len(others) > 1 and len(differing) == 1 and not is_step


def _first_installed(blocks: Sequence[Block], first: int, end: int) -> set[str]:
    """The packages of the first install command in these lines."""
    rows = (line for block in blocks for line in block.lines if first <= line[0] < end)
    commands = (installed_names(Block("", "", (row,))) for row in rows)
    return next((names for names in commands if names), set())
