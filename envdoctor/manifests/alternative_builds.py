"""Finds commands of one block that each install another build of torch: one for each CUDA version, and one for CPU.

A reader runs the command for the own machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Block

_INSTALL = lazy_pattern(
    r"\s*[$>%!]?\s*(?:sudo\s+)?(?:\S*python[\d.]*\s+-m\s+)?(?:uv\s+)?(?:pip[\d.]*|uv)(?:\s+-\S+)*\s+(?:install|add)\s"
)
_TORCH = lazy_pattern(r"\s[\"']?torch(?:\[[^\]]*\])?(?:[=<>~!][^\s]*)?[\"']?(?=\s|$)")
_BUILD = lazy_pattern(
    r"download(?:-r2)?\.pytorch\.org/whl/(?:nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]+|xpu)(?=[/\s\"']|$)"
    r"|--torch-backend[= ](\S+)|\storch==[\w.]+\+(cu\d{2,3}|cpu|rocm[\d.]+)"
)
# An extra of the project that names the machine: uv sync installs the torch of its index.
_SYNC = lazy_pattern(r"\s*[$>%!]?\s*uv\s+sync\s[^#]*--extra[= ](cpu|gpu|cuda|cu\d{2,3}|rocm[\d.]*|xpu|mps)(?=\s|$)")
_MACHINE = lazy_pattern(
    r"\b(?:cuda|cpu|gpus?|rocm|amd|nvidia|mps|mac(?:os)?|apple|linux|windows|intel|xpu)\b|显卡", re.IGNORECASE
)


class _Command(NamedTuple):
    """A command with its comment: the text and the first and last line."""

    text: str
    comment: str
    first: int
    last: int

    @property
    def is_of_torch(self) -> bool:
        return bool(_SYNC.match(self.text) or (_INSTALL.match(self.text) and _TORCH.search(self.text)))

    @property
    def build(self) -> str:
        found = _SYNC.match(self.text) or _BUILD.search(self.text)
        return next(each for each in found.groups() if each) if found else ""


def alternative_builds(blocks: Sequence[Block]) -> Iterator[list[tuple[str, int, int]]]:
    """The groups of alternatives, each with its name and its first and last line."""
    for block in blocks:
        group: list[_Command] = []
        for command in _commands(block):
            if group and _INSTALL.match(command.text) and command.build and command.build == group[-1].build:
                group[-1] = group[-1]._replace(last=command.last)  # its companions
            elif command.is_of_torch and (command.build or _MACHINE.search(command.comment)):
                group.append(command)
            else:
                yield from _alternatives(group)
                group = []
        yield from _alternatives(group)


def _alternatives(group: Sequence[_Command]) -> Iterator[list[tuple[str, int, int]]]:
    """The group, if each command has a build of its own."""
    builds = [each.build for each in group]
    if len(group) > 1 and len(set(builds)) == len(builds):
        yield [
            (each.comment or f"`{each.text.split(' #')[0].strip()[:60]}`", each.first, each.last) for each in group
        ]


def _commands(block: Block) -> Iterator[_Command]:
    text, comment, first = "", "", 0
    for number, line in block.lines:
        plain = line.strip()
        if not text and plain.startswith("#"):
            comment = comment or plain.strip("# :")[:80]
            first = first or number
        elif not text and not plain:
            comment, first = "", 0
        else:
            first = first or number
            text += f" {plain}"
            if not plain.endswith("\\"):
                yield _Command(text.replace("\\ ", " "), comment, first, number)
                text, comment, first = "", "", 0
