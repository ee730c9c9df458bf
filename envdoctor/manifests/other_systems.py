"""Blocks of a guide that are only for Windows, macOS or other accelerators than NVIDIA's GPUs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Block

_SYSTEM = (
    r"(?:Windows(?: ML| Server)?|DirectML|mac ?OS|OS ?X|Apple Silicon|Mac"
    r"|(?:Huawei )?Ascend(?: NPU)?|(?:AMD )?ROCm|AMD GPUs?|Intel (?:GPU|XPU|Gaudi))"
    r"(?:\s*(?:1[01]|/\s*mac ?OS|users?|only|\([^)]{0,20}\)))*"
)
# "(Only for Windows) You may need", "On Windows, run", "Windows users:", and a heading such as "Setup for macOS".
_PARAGRAPH = lazy_pattern(
    rf"[\W_]*(?:only |if you(?:'re| are| use| have)? )*(?:(?:for|on|under|using) )?(?:a )?{_SYSTEM}\s*(?![\w\s/&])",
    re.IGNORECASE,
)
_HEADING = lazy_pattern(
    rf"(?:[\w.]+ ){{0,3}}?(?:\(?(?:for|on|under) )?\(?{_SYSTEM}\)?(?: (?:setup|install\w*))?"
    rf"|{_SYSTEM} (?:[\w-]+ ){{0,2}}(?:setup|install\w*|guide|instructions?)(?: [\w-]+)?",
    re.IGNORECASE,
)
_LINUX = lazy_pattern(r"linux|ubuntu|debian|unix|wsl|subsystem|\bnot\b|n't\b|except", re.IGNORECASE)
_HEADING_LINE = lazy_pattern(r"(#{1,6})\s+(.+?)[\s#:]*$")
_UNDERLINE = lazy_pattern(r"-{3,}\s*|={3,}\s*")
_MAX_HEADING = 60  # letters
_MAX_BLANK = 100  # lines without a text between a paragraph and its code


def blocks_for_other_systems(lines: Sequence[str], blocks: Sequence[Block]) -> list[tuple[Block, str]]:
    """The blocks below a paragraph or a heading that names only another system, or in its `<details>`, with its text.

    None in a guide of which all blocks are for these systems.
    """
    code = {number for block in blocks for number, _ in block.lines}
    filled = [block for block in blocks if block.lines]
    texts = [(number, _plain(line)) for number, line in enumerate(lines, 1) if number not in code]
    headings, details = list(_headings(texts)), list(_details(lines))
    starts = ((block, block.lines[0][0]) for block in filled)
    found = [
        (block, text) for block, start in starts
        if (text := _in_details(details, start) or _other_system(texts, headings, start))
    ]  # fmt: skip
    return found if len(found) < len(filled) else []


def names_other_system(lines: Sequence[str], blocks: Sequence[Block], line: int) -> bool:
    """Whether the text of a section names Windows or macOS between its heading and a line of its code."""
    code = {number for block in blocks for number, _ in block.lines}
    for number in range(line - 1, 0, -1):
        if number not in code and re.search(r"\b(?:Windows|mac ?OS)\b", lines[number - 1], re.IGNORECASE):
            return True
        if number not in code and re.match(r"#{1,6} ", lines[number - 1]):
            return False
    return False


def _headings(texts: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """The headings with their lines and levels; of two lines as well, a title above `---` or `===`."""
    for (number, text), (_, following) in pairwise([*texts, (0, "")]):
        if match := _HEADING_LINE.match(text):
            yield number, len(match[1]), match[2]
        elif text and not text.startswith(("|", "-", "=")) and _UNDERLINE.fullmatch(following):
            yield number, 1 if following[0] == "=" else 2, text.strip()


def _details(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The first and the last line, and the title, of each `<details>` that is for another system."""
    opened: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        opened += [(number, "")] if re.search(r"<details\b", line, re.IGNORECASE) else []
        if opened and (match := re.search(r"<summary>(.{1,200}?)</summary>", line, re.IGNORECASE)):
            opened[-1] = (opened[-1][0], _plain(match[1]).strip())
        if opened and re.search(r"</details>", line, re.IGNORECASE):
            first, title = opened.pop()
            if _HEADING.fullmatch(title) and not _LINUX.search(title):
                yield first, number, title


def _in_details(details: Sequence[tuple[int, int, str]], line: int) -> str:
    return next((title for first, last, title in details if first < line < last), "")


def _other_system(texts: Sequence[tuple[int, str]], headings: Sequence[tuple[int, int, str]], first: int) -> str:
    """The paragraph right above a line, or the heading of its section, that names another system; else empty."""
    above = reversed(texts[max(0, (end := bisect_left(texts, (first, ""))) - _MAX_BLANK) : end])
    nearest = next((text for _, text in above if text and not text.startswith(("`", "~"))), "")
    if _PARAGRAPH.match(nearest) and not _LINUX.search(nearest):
        return nearest[:80]
    level = 7
    for _, depth, title in reversed(headings[: bisect_left(headings, first, key=itemgetter(0))]):
        if depth < level:
            level = depth
            if len(title) <= _MAX_HEADING and _HEADING.fullmatch(title) and not _LINUX.search(title):
                return title
        if level == 1:
            break
    return ""


def _plain(line: str) -> str:
    """A line without quotation marks of Markdown, tags and emphasis."""
    return re.sub(r"<[^<>]{0,60}>|[*_]{2}", "", line).strip("> \t")
