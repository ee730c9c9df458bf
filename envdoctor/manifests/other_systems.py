"""Blocks of a guide that are only for Windows or macOS, which a reader on Linux does not follow."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from envdoctor.manifests.markdown import Block

_SYSTEM = r"(?:Windows|mac ?OS|OS ?X|Apple Silicon|Mac)(?:\s*(?:1[01]|/\s*mac ?OS|users?|only|\([^)]{0,20}\)))*"
# "(Only for Windows) You may need", "On Windows, run", "Windows users:", and a heading such as "Setup for macOS".
_PARAGRAPH = re.compile(
    rf"[\W_]*(?:only |if you(?:'re| are| use| have)? )*(?:(?:for|on|under|using) )?(?:a )?{_SYSTEM}\s*(?![\w\s/&])",
    re.IGNORECASE,
)
_HEADING = re.compile(
    rf"(?:[\w.]+ ){{0,3}}?(?:\(?(?:for|on|under) )?\(?{_SYSTEM}\)?(?: (?:setup|install\w*))?"
    rf"|{_SYSTEM} (?:[\w-]+ ){{0,2}}(?:setup|install\w*|guide|instructions?)(?: [\w-]+)?",
    re.IGNORECASE,
)
_LINUX = re.compile(r"linux|ubuntu|debian|unix|wsl|subsystem|\bnot\b|n't\b|except", re.IGNORECASE)
_HEADING_LINE = re.compile(r"(#{1,6})\s+(.+?)[\s#:]*$")
_UNDERLINE = re.compile(r"-{3,}\s*|={3,}\s*")
_MAX_HEADING = 60  # letters
_MAX_BLANK = 100  # lines without a text between a paragraph and its code


def blocks_for_other_systems(lines: Sequence[str], blocks: Sequence[Block]) -> list[tuple[Block, str]]:
    """The blocks below a paragraph or a heading that names only Windows or macOS, with its text.

    None in a guide of which all blocks are for these systems.
    """
    code = {number for block in blocks for number, _ in block.lines}
    filled = [block for block in blocks if block.lines]
    texts = [(number, _plain(line)) for number, line in enumerate(lines, 1) if number not in code]
    headings = list(_headings(texts))
    found = [(block, text) for block in filled if (text := _other_system(texts, headings, block.lines[0][0]))]
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
