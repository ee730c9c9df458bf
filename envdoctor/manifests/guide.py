"""Parses a Markdown guide into actions, commands, Python code, and the machine that it names."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from envdoctor.manifests.actions import Action
from envdoctor.manifests.alternatives import Branch, GuidePath, find_paths
from envdoctor.manifests.block_actions import BlockReader
from envdoctor.manifests.markdown import Block, Line, parse_blocks
from envdoctor.manifests.shell_records import Command
from envdoctor.manifests.stated_machine import StatedMachine, parse_machine

_MAX_ACTIONS = 3000


class Guide(NamedTuple):
    """A parsed guide."""

    name: str
    actions: tuple[Action, ...]
    commands: tuple[Command, ...]
    python_blocks: tuple[tuple[Line, ...], ...]
    stated_machine: StatedMachine
    lines: tuple[str, ...]
    branches: tuple[Branch, ...] = ()  # the alternatives that this path through the guide follows
    blocks: tuple[Block, ...] = ()


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
    machine = parse_machine(lines, blocks)
    return Guide(
        name, actions, tuple(reader.commands), tuple(reader.python_blocks), machine, lines, (), tuple(blocks)
    )
