"""Parses a Markdown guide into actions, commands, Python code, and the machine that it names."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from envdoctor.manifests.actions import Action
from envdoctor.manifests.alternatives import Branch, GuidePath, find_paths
from envdoctor.manifests.block_actions import BlockReader
from envdoctor.manifests.markdown import Block, Line, parse_blocks
from envdoctor.manifests.shell_records import Command

_DRIVER_VERSION = re.compile(r"\b([3-9]\d{2}(?:\.\d{1,3}){0,2})\b")
_DRIVER_WORD = re.compile(r"driver|treiber|驱动|pilote|controlador|ドライバ|драйвер|sterownik", re.IGNORECASE)
_ARM = re.compile(r"aarch64|arm64|\bGH200\b|\bGB200\b|Grace[ -]Hopper|\bsbsa\b", re.IGNORECASE)
_X86 = re.compile(r"x86_64|amd64|\b(?:H100|H200|A100|A10G?|L40S?|RTX|V100|T4|B200)\b", re.IGNORECASE)
_MAX_ACTIONS = 3000


class StatedMachine(NamedTuple):
    """The machine that a guide names. `driver` is empty if the guide does not name it."""

    architecture: str
    driver: str
    driver_line: int


class Guide(NamedTuple):
    """A parsed guide."""

    name: str
    actions: tuple[Action, ...]
    commands: tuple[Command, ...]
    python_blocks: tuple[tuple[Line, ...], ...]
    stated_machine: StatedMachine
    lines: tuple[str, ...]
    branches: tuple[Branch, ...] = ()  # the alternatives that this path through the guide follows


def parse_guide(text: str, name: str) -> Guide:
    """Parse a guide. Actions, commands and Python code are in the order of the text."""
    return guide_of_blocks(parse_blocks(text), text, name)


def parse_paths(guide: Guide, text: str, name: str) -> list[Guide]:
    """The paths through a guide with alternatives, each as a guide of its own; without alternatives, the guide.

    A path has the line numbers of the text. The lines of other branches are empty.
    """
    lines, blocks = text.split("\n"), parse_blocks(text)
    paths = find_paths(lines, blocks)
    if len(paths) == 1:
        return [guide]
    return [_guide_of_path(path, lines, blocks, name) for path in paths]


def _guide_of_path(path: GuidePath, lines: list[str], blocks: list[Block], name: str) -> Guide:
    own_lines = ["" if number in path.excluded else line for number, line in enumerate(lines, 1)]
    own_blocks = [
        block._replace(lines=tuple(line for line in block.lines if line[0] not in path.excluded)) for block in blocks
    ]
    guide = guide_of_blocks([block for block in own_blocks if block.lines], "\n".join(own_lines), name)
    return guide._replace(branches=path.branches)


def guide_of_blocks(blocks: list[Block], text: str, name: str, reader: BlockReader | None = None) -> Guide:
    """The guide in the blocks of code of a text."""
    reader = reader or BlockReader(blocks)
    actions = tuple(islice(reader.actions(), _MAX_ACTIONS))
    lines = tuple(text.split("\n"))
    machine = _parse_machine(lines, blocks)
    return Guide(name, actions, tuple(reader.commands), tuple(reader.python_blocks), machine, lines)


def _parse_machine(lines: tuple[str, ...], blocks: list[Block]) -> StatedMachine:
    code = "\n".join(block.text for block in blocks)
    head = "\n".join(line for line in lines if line.startswith("# ") or line.lstrip().startswith("|"))[:20_000]
    architecture = "x86_64"
    for text in (head, code, "\n".join(lines)):  # title and tables first: the wheels of a guide may be wrong
        arm, x86 = len(_ARM.findall(text)), len(_X86.findall(text))
        if arm != x86:
            architecture = "aarch64" if arm > x86 else "x86_64"
            break
    return StatedMachine(architecture, *_parse_driver(lines, blocks))


def _parse_driver(lines: tuple[str, ...], blocks: list[Block]) -> tuple[str, int]:
    """The driver version in a table row or in code: `| Driver | 550.54.15 |`, `Driver Version: 550.54.15`."""
    candidates = [(number, line) for number, line in enumerate(lines, 1) if line.lstrip().startswith("|")]
    candidates += [line for block in blocks for line in block.lines]
    for number, line in candidates:
        word = _DRIVER_WORD.search(line)
        version = _DRIVER_VERSION.search(line, word.end()) if word else None
        if not word or not version:
            continue
        if version.start() - word.end() < 40 and 390 <= int(version[1].partition(".")[0]) < 700:
            return version[1], number
    return "", 0
