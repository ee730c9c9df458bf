"""Blocks that install a package again for another machine: "If you need CUDA 11.8, run the following"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Block
from envdoctor.resolution.requirement import parse_install_requirement

_IF = lazy_pattern(
    r"\b(?:if|for|on|when|users? (?:of|with)|in case|falls|wenn|für|bei|si|pour|con|para|если|для)\b"
    r"|如果|若|对于|如需|の場合",
    re.IGNORECASE,
)
_MACHINE = lazy_pattern(
    r"\bCUDA\s*-?(?:version\s*)?\d+|\bcu\d{3}\b|\bROCm\b|\bAMD\b|\bCPU\b|\bWindows\b|\bmac ?OS\b|\bARM\b|aarch64"
    r"|Python\s*3\.\d+|\b(?:GH|GB)\d{2,3}\b|\bRTX\s*\d+|\b[ABHVTL]\d{1,3}0?S?\b|Hopper|Blackwell|Jetson|Ascend",
    re.IGNORECASE,
)
_INSTALL = lazy_pattern(r"\b(?:pip3?|uv|conda|mamba)\s+(?:pip\s+)?install\s+(.*)")

Span = tuple[str, int, int]  # name, first and last line


def conditional_reinstalls(lines: Sequence[str], blocks: Sequence[Block]) -> Iterator[tuple[Span, Span]]:
    """The blocks before one that installs one of their packages again for a machine, and that block."""
    filled = [block for block in blocks if block.lines]
    headings = _headings(lines, filled)
    for index, block in enumerate(filled):
        text = _text_before(lines, filled, index)
        names = installed_names(block)
        if not names or not (_IF.search(text) and _MACHINE.search(text)):
            continue
        earlier = [other for other in filled[:index] if installed_names(other) & names]
        first, end = (earlier[0].lines[0][0], filled[index - 1].lines[-1][0]) if earlier else (0, 0)
        if earlier and not any(first < heading < block.lines[0][0] for heading in headings):
            yield ("without this condition", first, end), (text[:80], block.lines[0][0], block.lines[-1][0])


def _text_before(lines: Sequence[str], blocks: Sequence[Block], index: int) -> str:
    """The paragraph right before a block, after the block before it."""
    start = blocks[index - 1].lines[-1][0] if index else 0
    between = [lines[number - 1].strip() for number in range(start + 1, blocks[index].lines[0][0])]
    texts = [text for text in between if text and not text.startswith(("```", "~~~"))]
    return texts[-1].strip("*_ >") if texts else ""


def _headings(lines: Sequence[str], blocks: Sequence[Block]) -> list[int]:
    code = {number for block in blocks for number, _ in block.lines}
    return [n for n, text in enumerate(lines, 1) if n not in code and re.match(r"#{1,6} ", text)]


def installed_names(block: Block) -> set[str]:
    """The packages that the install commands of a block name."""
    names: set[str] = set()
    for _, text in block.lines:
        found = None if text.lstrip().startswith("#") else _INSTALL.search(text)
        words = found[1].split() if found else []
        parsed = (parse_install_requirement(word, 0) for word in words if not word.startswith("-"))
        names |= {each.name for each in parsed if each and each.name and (each.wheel or not each.url)}
    return names
